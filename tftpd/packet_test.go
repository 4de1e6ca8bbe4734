package tftpd

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// Requests as real clients send them.
var seeds = map[string]string{
	"OVMF probe":  "\x00\x01boot/52-54-00-00-02-01/ipxe.efi\x00octet\x00tsize\x000\x00blksize\x001468\x00windowsize\x004\x00",
	"shim":        "\x00\x01boot\\52-54-00-00-02-01\\grubx64.efi\x00octet\x00blksize\x00512\x00windowsize\x004\x00",
	"iPXE":        "\x00\x01autoexec.ipxe\x00octet\x00blksize\x001432\x00tsize\x000\x00",
	"GRUB":        "\x00\x01/grub/x86_64-efi/command.lst\x00octet\x00blksize\x001024\x00tsize\x000\x00",
	"PXELINUX":    "\x00\x01ldlinux.c32\x00octet\x00tsize\x000\x00blksize\x001408\x00",
	"RPi 3":       "\x00\x01bootcode.bin\x00octet\x00",
	"curl":        "\x00\x01undionly.kpxe\x00octet\x00tsize\x000\x00blksize\x00512\x00timeout\x001\x00",
	"atftp":       "\x00\x01f\x00octet\x00blksize\x001428\x00windowsize\x0016\x00",
	"write":       "\x00\x02f\x00netascii\x00",
	"shouting":    "\x00\x01F.EFI\x00OCTET\x00BLKSIZE\x001024\x00TSIZE\x000\x00",
	"cut short":   "\x00\x01f\x00octet",
	"0xff behind": "\x00\x01pxelinux.0\xff\x00octet\x00",
}

func TestParseRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, packet string
		want         Request
		err          string
	}{
		{name: "OVMF", packet: seeds["OVMF probe"], want: Request{Name: "boot/52-54-00-00-02-01/ipxe.efi", Mode: "octet",
			Options: []Option{{"tsize", "0"}, {"blksize", "1468"}, {"windowsize", "4"}}}},
		{name: "upper case", packet: seeds["shouting"], want: Request{Name: "F.EFI", Mode: "octet", Options: []Option{{"blksize", "1024"}, {"tsize", "0"}}}},
		{name: "no options", packet: seeds["RPi 3"], want: Request{Name: "bootcode.bin", Mode: "octet"}},
		{name: "no last zero", packet: seeds["cut short"], want: Request{Name: "f", Mode: "octet"}},
		{name: "last value without zero", packet: "\x00\x01f\x00octet\x00tsize\x000", want: Request{Name: "f", Mode: "octet", Options: []Option{{"tsize", "0"}}}},
		{name: "option twice", packet: "\x00\x01f\x00octet\x00tsize\x000\x00TSIZE\x001\x00", want: Request{Name: "f", Mode: "octet", Options: []Option{{"tsize", "0"}}}},
		{name: "option without value", packet: "\x00\x01f\x00octet\x00tsize\x00", want: Request{Name: "f", Mode: "octet"}},
		{name: "padding", packet: "\x00\x01f\x00octet\x00\x00\x00\x00", want: Request{Name: "f", Mode: "octet"}},
		{name: "write", packet: seeds["write"], want: Request{Write: true, Name: "f", Mode: "netascii"}},
		{name: "empty", packet: "", err: "packet of 0 bytes: neither a read nor a write request"},
		{name: "ack", packet: "\x00\x04\x00\x01", err: "opcode 4: neither a read nor a write request"},
		{name: "no name", packet: "\x00\x01\x00octet\x00", err: "request without a file name"},
		{name: "name without zero", packet: "\x00\x01fff", err: "request without a file name"},
		{name: "no mode", packet: "\x00\x01f\x00", err: "request without a mode"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseRequest([]byte(tt.packet))
			if err != nil && err.Error() != tt.err || err == nil && tt.err != "" {
				t.Fatalf("error = %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRequest asserts that what was understood survives the wire: parse, format, parse is the same request.
func FuzzRequest(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			return
		}
		again, err := ParseRequest(r.Append(nil))
		if err != nil {
			t.Fatalf("%q was understood as %+v, but not once formatted: %v", b, r, err)
		}
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("formatted and parsed again (-want +got):\n%s", diff)
		}
		negotiated := negotiate(r.Options, limits{block: 1468, window: 64, timeout: time.Second, size: 1})
		if negotiated.block < minBlock || negotiated.block > 1468 || negotiated.window < 1 || negotiated.window > 64 || negotiated.timeout < time.Second {
			t.Errorf("options %v gave %+v", r.Options, negotiated)
		}
		for _, o := range negotiated.oack {
			asked := slices.IndexFunc(r.Options, func(a Option) bool { return a.Name == o.Name })
			if asked < 0 || len(negotiated.oack) > len(r.Options) {
				t.Errorf("acknowledged %v, asked for only %v", negotiated.oack, r.Options)
			}
		}
		if got, ok := resolve(r.Name); ok && (strings.Contains(got.name, `\`) || strings.HasPrefix(got.name, "/") ||
			strings.Contains("/"+got.name+"/", "/../")) {
			t.Errorf("name %q resolved to %q", r.Name, got.name)
		}
	})
}

// FuzzReply asserts that replies never carry more than a log line can.
func FuzzReply(f *testing.F) {
	f.Add([]byte("\x00\x04\x00\x01"))
	f.Add([]byte("\x00\x05\x00\x08User aborted the transfer\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseReply(b)
		if !ok {
			return
		}
		if r.op != opACK && r.op != opERROR {
			t.Errorf("opcode %d is a reply", r.op)
		}
		if len(r.text) > 128 || strings.ContainsFunc(r.text, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("text %q is not fit for a log", r.text)
		}
	})
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	l := limits{block: 1468, window: 64, timeout: time.Second, size: 4711}
	tests := []struct {
		name    string
		options []Option
		limits  limits
		want    negotiated
	}{
		{"nothing asked", nil, l, negotiated{block: 512, window: 1, timeout: time.Second}},
		{"OVMF", []Option{{"tsize", "0"}, {"blksize", "1468"}, {"windowsize", "4"}}, l,
			negotiated{block: 1468, window: 4, timeout: time.Second, oack: []Option{{"tsize", "4711"}, {"blksize", "1468"}, {"windowsize", "4"}}}},
		{"larger than the MTU", []Option{{"blksize", "65464"}}, l, negotiated{block: 1468, window: 1, timeout: time.Second, oack: []Option{{"blksize", "1468"}}}},
		{"larger than the protocol's", []Option{{"blksize", "70000"}}, limits{window: 1, timeout: time.Second}, negotiated{block: 65464, window: 1, timeout: time.Second, oack: []Option{{"blksize", "65464"}}}},
		{"smallest", []Option{{"blksize", "8"}}, l, negotiated{block: 8, window: 1, timeout: time.Second, oack: []Option{{"blksize", "8"}}}},
		{"too small", []Option{{"blksize", "7"}}, l, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
		{"window too large", []Option{{"windowsize", "65535"}}, l, negotiated{block: 512, window: 64, timeout: time.Second, oack: []Option{{"windowsize", "64"}}}},
		{"no window", []Option{{"windowsize", "0"}}, l, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
		{"timeout", []Option{{"timeout", "3"}}, l, negotiated{block: 512, window: 1, timeout: 3 * time.Second, exact: true, oack: []Option{{"timeout", "3"}}}},
		{"longest timeout", []Option{{"timeout", "10"}}, l, negotiated{block: 512, window: 1, timeout: 10 * time.Second, exact: true, oack: []Option{{"timeout", "10"}}}},
		{"timeout too long", []Option{{"timeout", "11"}}, l, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
		{"timeout out of range", []Option{{"timeout", "256"}}, l, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
		{"size unknown", []Option{{"tsize", "0"}}, limits{window: 1, timeout: time.Second, size: -1}, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
		{"unknown", []Option{{"utimeout", "5000"}, {"multicast", ""}, {"blksize", "x"}}, l, negotiated{block: 512, window: 1, timeout: time.Second, oack: nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := negotiate(tt.options, tt.limits)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(negotiated{})); diff != "" {
				t.Errorf("negotiated (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBlockLimit asks the kernel for routes; nothing is sent.
func TestBlockLimit(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	netns.NewSegment(t, "10.78.0.1/24")
	routed := netns.NewSegment(t, "10.79.0.1/24")
	netns.Run(t, "ip", "route", "add", "10.80.0.0/24", "via", "10.79.0.9", "dev", routed.Bridge, "mtu", "1400")
	for client, want := range map[string]int{
		"127.0.0.1:69": 65535 - 32, "10.78.0.9:2070": 1468, "10.80.0.9:2070": 1368, "[::1]:69": 65536 - 52, "203.0.113.1:69": 0,
	} {
		if got := blockLimit(netip.MustParseAddrPort(client)); got != want {
			t.Errorf("blockLimit(%s) = %d, want %d", client, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	mac := lab.MAC{0x52, 0x54, 0, 0, 2, 1}
	tests := []struct {
		name string
		want target
		ok   bool
	}{
		{"boot/52-54-00-00-02-01/ipxe.efi", target{firmware, "ipxe.efi", mac}, true},
		{"/boot/52-54-00-00-02-01/ipxe.efi", target{firmware, "ipxe.efi", mac}, true},
		{`\boot\52-54-00-00-02-01\ipxe.efi`, target{firmware, "ipxe.efi", mac}, true},
		{"BOOT/52-54-00-00-02-01/IPXE.EFI", target{firmware, "IPXE.EFI", mac}, true},
		{"boot/52:54:00:00:02:01/boot.ipxe", target{script, "boot.ipxe", mac}, true},
		{"boot/52-54-00-00-02-01/autoexec.ipxe", target{script, "autoexec.ipxe", mac}, true},
		{"autoexec.ipxe", target{kind: script, name: "autoexec.ipxe"}, true},
		{"/boot.ipxe", target{kind: script, name: "boot.ipxe"}, true},
		{"undionly.kpxe\xff", target{kind: firmware, name: "undionly.kpxe"}, true},
		{"files/images/vmlinuz", target{kind: file, name: "images/vmlinuz"}, true},
		{"images//vmlinuz", target{kind: file, name: "images/vmlinuz"}, true},
		{"./images/vmlinuz", target{kind: file, name: "images/vmlinuz"}, true},
		{"boot/not-a-mac/ipxe.efi", target{kind: file, name: "boot/not-a-mac/ipxe.efi"}, true},
		{"boot/52-54-00-00-02-01/a/b", target{kind: file, name: "boot/52-54-00-00-02-01/a/b"}, true},
		{"/grub/grub.cfg", target{kind: script, name: "grub.cfg"}, true},
		{"/debian-installer/amd64/grub/grub.cfg", target{kind: script, name: "grub.cfg"}, true},
		{"boot/52-54-00-00-02-01/grub.cfg", target{script, "grub.cfg", mac}, true},
		{"boot/52-54-00-00-02-01/grub/grub.cfg", target{script, "grub.cfg", mac}, true},
		{"grub.cfg", target{kind: script, name: "grub.cfg"}, true},
		{"/EFI/redhat/GRUB.cfg-01-52-54-00-00-02-01", target{script, "grub.cfg", mac}, true},
		{"/grub/grub.cfg-0A4D0015", target{kind: file, name: "grub/grub.cfg-0A4D0015"}, true},
		{"/grub/x86_64-efi/fs.lst", target{kind: file, name: "grub/x86_64-efi/fs.lst"}, true},
		{"public/grub/grub.cfg", target{kind: file, name: "public/grub/grub.cfg"}, true},
		{"/files/public/grub/grub.cfg", target{kind: file, name: "public/grub/grub.cfg"}, true},
		{"../etc/passwd", target{}, false},
		{"images/../../etc/passwd", target{}, false},
		{`images\..\x`, target{}, false},
		{"/", target{}, false},
		{".", target{}, false},
		{"\xff", target{}, false},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, "/", "|"), func(t *testing.T) {
			t.Parallel()
			got, ok := resolve(tt.name)
			if ok != tt.ok {
				t.Fatalf("resolve = %+v, %v, want %v", got, ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(target{})); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOptional: what shim, GRUB, U-Boot and Raspberry Pis ask for and can do without is no news.
func TestOptional(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"revocations_sku.efi": true, "revocations_sbat.efi": true, "shim_certificate_0.efi": true, "grub/x86_64-efi/command.lst": true,
		"debian-installer/amd64/grub/x86_64-efi/http.mod": true, "grubx64.efi": false, "images/vmlinuz": false, "public/files.lst": false,
		"boot.scr.uimg": true, "dtb": true, "dtb/rockchip/rk3399-rockpro64.dtb": true, "public/dtb/a.dtb": false,
		"bootsig.bin": true, "deadbeef/recovery.elf": true, "dc-a6-32-01-02-03/armstub8-gic.bin": true, "start4.elf": false, "images/recovery.elf": false,
	} {
		if got := optional(name); got != want {
			t.Errorf("optional(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestReadAhead(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789"), 10)[:97]
	s := &readAhead{content: inMemory(data), block: 8, window: 16}
	got, n, err := s.packets(11, 3) // blocks 11 and 12 are whole, 13 has one byte
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	want := []byte("\x00\x03\x00\x0b" + string(data[80:88]) + "\x00\x03\x00\x0c" + string(data[88:96]) + "\x00\x03\x00\x0d" + string(data[96:]))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	s = &readAhead{content: inMemory(data[:96]), block: 8, window: 16}
	if got, _, err = s.packets(13, 1); err != nil || string(got) != "\x00\x03\x00\x0d" {
		t.Errorf("the last block of a file of whole blocks = %q, %v, want an empty one", got, err)
	}
}

// Append appends the request in wire format.
func (r Request) Append(b []byte) []byte {
	op := byte(opRRQ)
	if r.Write {
		op = opWRQ
	}
	b = append(b, 0, op)
	b = append(append(b, r.Name...), 0)
	b = append(append(b, r.Mode...), 0)
	return appendOptions(b, r.Options)
}
