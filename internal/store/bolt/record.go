package bolt

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/bootlab/bootlab/internal/store"
)

// A journal file is a header and records; all numbers are little endian.
//
//	header  8 magic and version · 4 CRC32C of the rest · 4 zero · 8 epoch · 8 last sequence number of the epoch before
//	record  4 CRC32C of the rest · 4 length of the payload · 8 epoch · 8 sequence number · payload · zeros up to a multiple of 8
//	payload operations: uvarint of the key's length × 2, + 1 if it deletes · key · unless it deletes: uvarint length of the value · value
//
// The sums end before the zeros.
const (
	magic        = "bootlab\x01"
	headerSize   = 32
	recordSize   = 24 // without payload
	recordAlign  = 8
	opOverhead   = 2 * binary.MaxVarintLen32 // at most, beside key and value
	maxTxnSize   = 1 << 30
	crcSize      = 4
	deleted      = 1
	headerSumEnd = len(magic) + crcSize
)

var errMalformed = errors.New("malformed operation")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendHeader begins the journal of an epoch. previous is how many records the epoch before had, so that recovery knows
// when some are missing.
func appendHeader(b []byte, epoch, previous uint64) []byte {
	at := len(b)
	b = append(b, magic...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint64(b, previous)
	h := b[at:]
	binary.LittleEndian.PutUint32(h[len(magic):], crc32.Checksum(h[headerSumEnd:], castagnoli))
	return b
}

// parseHeader returns what appendHeader wrote.
func parseHeader(b []byte) (epoch, previous uint64, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return 0, 0, false
	}
	if binary.LittleEndian.Uint32(b[len(magic):]) != crc32.Checksum(b[headerSumEnd:headerSize], castagnoli) {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:]), true
}

// appendOp encodes an operation and returns the place of its value in the result, nil if it deletes.
func appendOp(b []byte, op *store.Op) (_, value []byte) {
	n := uint64(len(op.Key)) << 1
	if op.Delete {
		b = binary.AppendUvarint(b, n|deleted)
		return append(b, op.Key...), nil
	}
	b = binary.AppendUvarint(b, n)
	b = append(b, op.Key...)
	b = binary.AppendUvarint(b, uint64(len(op.Value)))
	at := len(b)
	b = append(b, op.Value...)
	return b, b[at:len(b):len(b)]
}

// sealRecord completes a record whose payload follows recordSize free bytes, and returns it with its padding.
func sealRecord(b []byte, epoch, seq uint64) []byte {
	binary.LittleEndian.PutUint32(b[crcSize:], uint32(len(b)-recordSize))
	binary.LittleEndian.PutUint64(b[8:], epoch)
	binary.LittleEndian.PutUint64(b[16:], seq)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[crcSize:], castagnoli))
	for len(b)%recordAlign != 0 {
		b = append(b, 0)
	}
	return b
}

// parseRecord returns the record at the start of b, if there is a whole one of that epoch, and its size with padding.
func parseRecord(b []byte, epoch uint64) (seq uint64, payload []byte, size int, ok bool) {
	if len(b) < recordSize || binary.LittleEndian.Uint64(b[8:]) != epoch {
		return 0, nil, 0, false
	}
	n := uint64(binary.LittleEndian.Uint32(b[crcSize:]))
	if n > uint64(len(b)-recordSize) {
		return 0, nil, 0, false
	}
	end := recordSize + int(n)
	if crc32.Checksum(b[crcSize:end], castagnoli) != binary.LittleEndian.Uint32(b) {
		return 0, nil, 0, false
	}
	size = (end + recordAlign - 1) / recordAlign * recordAlign
	return binary.LittleEndian.Uint64(b[16:]), b[recordSize:end], min(size, len(b)), true
}

// parseOps calls fn for each operation of a payload; value is nil where the key is deleted. Both are parts of b.
func parseOps(b []byte, fn func(key string, value []byte)) error {
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n>>1 == 0 || n>>1 > uint64(len(b)-used) {
			return errMalformed
		}
		key, rest := b[used:used+int(n>>1)], b[used+int(n>>1):]
		if n&deleted != 0 {
			fn(string(key), nil)
			b = rest
			continue
		}
		size, used := binary.Uvarint(rest)
		if used <= 0 || size > uint64(len(rest)-used) {
			return errMalformed
		}
		end := used + int(size)
		fn(string(key), rest[used:end:end])
		b = rest[end:]
	}
	return nil
}
