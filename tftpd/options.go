package tftpd

import (
	"strconv"
	"time"
)

// The limits of options.
const (
	defaultBlock = 512   // RFC 1350
	minBlock     = 8     // RFC 2348
	maxBlock     = 65464 // RFC 2348
	maxTimeout   = 255   // seconds, RFC 2349
	// overhead4 and overhead6 are the bytes of an IP packet that are not the file's: IP, UDP and TFTP headers.
	overhead4 = 20 + 8 + headerLen
	overhead6 = 40 + 8 + headerLen
)

// terms are what client and server agreed on.
type terms struct {
	block   int // bytes of the file in a packet
	window  int // packets before an ACK (RFC 7440)
	timeout time.Duration
	exact   bool // the client asked for the timeout
	roll    rollover
	oack    []Option // what to acknowledge; empty: nothing was asked for, so no OACK (RFC 2347)
}

// limits are what the server can do for one client.
type limits struct {
	block   int // 0: no limit beyond the protocol's
	window  int
	timeout time.Duration // where the client does not ask for one
	size    int64         // of the file; negative: unknown, as in netascii mode; 0 is not acknowledged
}

// negotiate answers the options of a request. It acknowledges only what was asked for, and never more than was asked for:
// EDK2 ends the transfer otherwise (Mtftp4Rrq.c). What is unknown or out of range is left out, as if never sent.
func negotiate(options []Option, l limits) terms {
	t := terms{block: defaultBlock, window: 1, timeout: l.timeout}
	for _, o := range options {
		n, err := strconv.ParseInt(o.Value, 10, 64)
		if err != nil {
			continue
		}
		switch {
		case o.Name == "blksize" && n >= minBlock:
			t.block = int(min(n, maxBlock))
			if l.block > 0 {
				t.block = max(minBlock, min(t.block, l.block))
			}
			t.agree(o.Name, int64(t.block))
		case o.Name == "windowsize" && n >= 1 && n <= 65535:
			t.window = int(min(n, int64(l.window)))
			t.agree(o.Name, int64(t.window))
		case o.Name == "timeout" && n >= 1 && n <= maxTimeout:
			t.timeout, t.exact = time.Duration(n)*time.Second, true
			t.agree(o.Name, n)
		case o.Name == "rollover" && (n == 0 || n == 1): // tftp-hpa's
			t.roll = rollover(n)
			t.agree(o.Name, n)
		case o.Name == "tsize" && n >= 0 && l.size > 0: // curl takes a size of 0 for an error
			t.agree(o.Name, l.size)
		}
	}
	return t
}

func (t *terms) agree(name string, value int64) {
	t.oack = append(t.oack, Option{Name: name, Value: strconv.FormatInt(value, 10)})
}
