package tftpd_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
)

const raspberryLab = `
version: 1
domain: example
networks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}
profiles:
  rpi: {tree: media/rpi, kernel: media/rpi/kernel8.img, config: media/rpi/user-data, install: never}
  other: {kernel: images/kernel}
hosts:
  pi: {mac: "dc:a6:32:01:02:03", ip: 10.0.0.11, profile: rpi}
  pc: {mac: "52:54:00:00:02:01", ip: 10.0.0.12, profile: other}
`

// TestRaspberryPiFindsItsFiles asks as the boot loaders of Raspberry Pis do: without options (Pi 3) or with tsize and blksize 1024
// (Pi 4), in a folder named after serial number or MAC, then without a folder, and for what is seldom there. A Pi opens a file to see
// whether it is there, and hangs up.
func TestRaspberryPiFindsItsFiles(t *testing.T) {
	eachPort(t, testRaspberryPiFindsItsFiles)
}

func testRaspberryPiFindsItsFiles(t *testing.T, single bool) {
	const missing, denied, quiet = "1 file not found", "2 access violation", "quiet"
	s := newTestServer(t, testConfig{single: single, lab: raspberryLab, leases: leases{
		netip.MustParseAddr("127.0.0.1"): {0xdc, 0xa6, 0x32, 1, 2, 3},
		netip.MustParseAddr("127.0.0.2"): {0x52, 0x54, 0, 0, 2, 1},
	}})
	s.write(t, map[string]string{
		"media/rpi/config.txt": "arm_64bit=1\n", "media/rpi/start4.elf": "start", "media/rpi/overlays/vc4.dtbo": "overlay",
		"media/rpi/user-data": "secret", "public/12345678/config.txt": "exact\n",
	})
	for _, tt := range []struct {
		from, name string
		want       string // the content, or the error; with "quiet" after it, no event
	}{
		{"127.0.0.1", "deadbeef/config.txt", "arm_64bit=1\n"},
		{"127.0.0.1", "dc-a6-32-01-02-03/config.txt", "arm_64bit=1\n"},
		{"127.0.0.3", "dc-a6-32-01-02-03/config.txt", "arm_64bit=1\n"}, // beside another DHCP server
		{"127.0.0.1", "config.txt", "arm_64bit=1\n"},
		{"127.0.0.1", "DEADBEEF/start4.elf", "start"},
		{"127.0.0.1", "deadbeef/overlays/vc4.dtbo", "overlay"},
		{"127.0.0.1", "overlays/vc4.dtbo", "overlay"},
		{"127.0.0.1", "media/rpi/config.txt", "arm_64bit=1\n"},
		{"127.0.0.1", "public/12345678/config.txt", "exact\n"},
		{"127.0.0.1", "bootsig.bin", missing + quiet},
		{"127.0.0.1", "deadbeef/recover4.elf", missing + quiet},
		{"127.0.0.1", "armstub8-gic.bin", missing + quiet},
		{"127.0.0.1", "deadbeef/start9.elf", missing},
		{"127.0.0.1", "deadbeef/user-data", denied},
		{"127.0.0.1", "user-data", denied},
		{"127.0.0.2", "config.txt", missing},                           // it boots something else
		{"127.0.0.3", "deadbeef/config.txt", missing},                  // no lease
		{"127.0.0.2", "dc-a6-32-01-02-03/config.txt", "arm_64bit=1\n"}, // the MAC decides, as for boot/MAC/boot.ipxe
		{"127.0.0.1", "52-54-00-00-02-01/config.txt", missing},
	} {
		for _, options := range [][]string{nil, {"tsize", "0", "blksize", "1024"}} {
			c := newClientFrom(t, tt.from, s.addr)
			c.send(request(tt.name, "octet", options...))
			want, silent := strings.CutSuffix(tt.want, quiet)
			if want == missing || want == denied {
				if got := c.errorPacket(); got != want {
					t.Errorf("%s asks for %s: error %q, want %q", tt.from, tt.name, got, want)
				}
				if !silent {
					if e := s.events.next(t); e.Kind != event.TFTPRefused {
						t.Errorf("%s: event %+v", tt.name, e)
					}
				}
				continue
			}
			if options != nil {
				c.oack()
				c.ack(0)
			}
			if got := c.data(1); got != want {
				t.Errorf("%s asks for %s: %q, want %q", tt.from, tt.name, got, want)
			}
			c.send([]byte("\x00\x05\x00\x00\x00"))
			if e := s.events.next(t); e.Kind != event.TFTPProbe {
				t.Errorf("%s: event %+v, want a probe", tt.name, e)
			}
		}
	}
	s.events.none(t)
}

// write puts files below the site's folder.
func (s *testServer) write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
