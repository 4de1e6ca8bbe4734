package tftpload

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// Opcodes of RFC 1350 section 5 and RFC 2347.
const (
	opRead  = 1
	opData  = 3
	opACK   = 4
	opError = 5
	opOACK  = 6
)

const headerLen = 4

// request makes the read request for cfg.
func (cfg *Config) request() []byte {
	b := append([]byte{0, opRead}, cfg.Name...)
	b = append(b, "\x00octet\x00"...)
	for _, o := range []struct {
		name  string
		value int
	}{{"blksize", cfg.Block}, {"windowsize", cfg.Window}} {
		if o.value > 0 {
			b = append(append(b, o.name...), 0)
			b = append(strconv.AppendInt(b, int64(o.value), 10), 0)
		}
	}
	return b
}

// options reads the numbers of an option acknowledgement, without its opcode.
func options(b []byte) map[string]int {
	all := map[string]int{}
	words := bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0})
	for i := 0; i+1 < len(words); i += 2 {
		if n, err := strconv.Atoi(string(words[i+1])); err == nil {
			all[string(bytes.ToLower(words[i]))] = n
		}
	}
	return all
}

func putACK(b []byte, block int64) []byte {
	b = append(b[:0], 0, opACK)
	return binary.BigEndian.AppendUint16(b, uint16(block))
}
