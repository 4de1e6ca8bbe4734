package kpxe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Around the stream of a block stand its length, which counts the CRC too, and the CRC of the stream.
const (
	lenSize = 4
	crcSize = 4
)

// Replace returns program with old, which must stand in its last block once, replaced by new. Both are plain text of the same length. The
// stream must not become longer than it was: what it is shorter by is filled with zeros, so that the program keeps its
// length, which its header tells of. It fails if any of this does not hold, and for what is no such program.
func Replace(program, old, new []byte) ([]byte, error) {
	if len(old) != len(new) {
		return nil, fmt.Errorf("replace %d bytes by %d: the lengths differ", len(old), len(new))
	}
	at, stream, err := lastBlock(program)
	if err != nil {
		return nil, err
	}
	steps, data, err := decode(stream)
	if err != nil {
		return nil, fmt.Errorf("unpack the last block: %w", err)
	}
	from, err := find(data, old, new)
	if err != nil {
		return nil, err
	}
	copy(data[from:], new)
	changed, err := encode(remake(steps, data, from, from+len(new)), data)
	if err != nil {
		return nil, fmt.Errorf("pack the last block: %w", err)
	}
	size := len(program) - at
	if n := lenSize + len(changed) + crcSize; n > size {
		return nil, fmt.Errorf("the packed block would need %d bytes, and has %d", n, size)
	}
	return append(bytes.Clone(program[:at]), block(changed, size)...), nil
}

// lastBlock returns where the block is that has nothing but zeros behind it, and its stream.
func lastBlock(program []byte) (at int, stream []byte, err error) {
	zeros := len(program) - len(bytes.TrimRight(program, "\x00"))
	for at := 0; at+lenSize+crcSize <= len(program); at++ {
		rest := program[at+lenSize:]
		n := uint64(binary.LittleEndian.Uint32(program[at:]))
		if n < crcSize || n > uint64(len(rest)) || n+uint64(zeros) < uint64(len(rest)) {
			continue
		}
		stream, sum := rest[:n-crcSize], rest[n-crcSize:]
		if checksum(stream) == binary.LittleEndian.Uint32(sum) {
			return at, stream, nil
		}
	}
	return 0, nil, errors.New("no packed block is at the program's end")
}

// block returns a stream with its length and CRC, and zeros up to size.
func block(stream []byte, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(len(stream)+crcSize))
	n := lenSize + copy(b[lenSize:], stream)
	binary.LittleEndian.PutUint32(b[n:], checksum(stream))
	return b
}

// checksum is the CRC that iPXE's loader computes: the usual one without the inversion at its end.
func checksum(b []byte) uint32 { return ^crc32.ChecksumIEEE(b) }

// The opcodes of call and jmp, after which four bytes say where to.
const (
	opCall = 0xe8
	opJump = 0xe9
)

// find returns where old stands in unpacked data. Before packing, zbin made the targets of calls and jumps absolute, after
// whatever byte looks like one; the loader undoes it. Text has no such byte, so it stands there as it is, and may be changed
// without moving the search for the next one, unless such a byte comes right before it.
func find(data, old, new []byte) (int, error) {
	if n := bytes.Count(data, old); n != 1 {
		return 0, fmt.Errorf("the last block holds the text %d times, want once", n)
	}
	from := bytes.Index(data, old)
	for _, part := range [][]byte{data[max(0, from-4):from], old, new} {
		if bytes.IndexByte(part, opCall) >= 0 || bytes.IndexByte(part, opJump) >= 0 {
			return 0, errors.New("the text, or what is right before it, looks like a call or a jump: that is not provided for")
		}
	}
	return from, nil
}
