package leases

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/storetest"
)

const key1 = "lease/10.0.0.7"

func full() Lease {
	return Lease{
		Addr: ip("10.0.0.7"), MAC: mac(7), State: Active, Start: time.Unix(1_800_000_000, 0), Expiry: time.Unix(1_800_043_200, 0),
		Hostname: "node-7", ClientID: []byte{1, 2, 0, 0, 0, 0, 7}, Vendor: "PXEClient:Arch:00007:UNDI:003016", RelayPort: "sw1/ge-0/0/7",
	}
}

func encode(l Lease) []byte { return appendTexts(appendStamp(nil, stampOf(&l)), &l) }

func TestRecord(t *testing.T) {
	t.Parallel()
	long := full()
	long.Hostname, long.Vendor, long.RelayPort = strings.Repeat("h", 300), strings.Repeat("v", 300), strings.Repeat("l", 300)
	long.ClientID = bytes.Repeat([]byte{1}, 300)
	cut := long
	cut.Hostname, cut.Vendor, cut.RelayPort, cut.ClientID = long.Hostname[:255], long.Vendor[:255], long.RelayPort[:255], long.ClientID[:255]
	bare := Lease{Addr: ip("10.0.0.7"), State: Released, Start: time.Unix(0, 0), Expiry: time.Unix(0, 0)}
	far := full()
	far.Expiry = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	end := far
	end.Expiry = time.Unix(1<<32-1, 0)
	for _, tt := range []struct {
		name      string
		put, want Lease
	}{{"all", full(), full()}, {"too long", long, cut}, {"bare", bare, bare}, {"after 2106", far, end}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, blob, err := parseRecord(key1, encode(tt.put))
			if err != nil {
				t.Fatal(err)
			}
			a, _ := addr4(tt.put.Addr)
			if diff := cmp.Diff(tt.want, s.lease(a, blob), cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordGolden(t *testing.T) {
	t.Parallel()
	l := full()
	l.Vendor, l.RelayPort = "pxe", ""
	want := "\x01\x01\x02\x00\x00\x00\x00\x07\x6b\x49\xd2\x00\x6b\x4a\x7a\xc0\x06node-7\x07\x01\x02\x00\x00\x00\x00\x07\x03pxe\x00"
	if got := encode(l); string(got) != want {
		t.Errorf("record is %q, want %q: stores in the field have the latter", got, want)
	}
}

func TestRecordRefused(t *testing.T) {
	t.Parallel()
	good := string(encode(full()))
	for _, tt := range []struct{ name, key, value, want string }{
		{"nothing", key1, "", "cut short"},
		{"head only", key1, good[:headSize], "cut short"},
		{"cut short", key1, good[:len(good)-1], "cut short"},
		{"too long", key1, good + "x", "too long"},
		{"version 3", key1, "\x03" + good[1:], "version 3"},
		{"state 0", key1, good[:1] + "\x00" + good[2:], "state 0"},
		{"conflict", key1, good[:1] + "\x04" + good[2:], "conflict"},
		{"no address", "lease/", good, "want lease/<IPv4 address>"},
		{"IPv6", "lease/::1", good, "want lease/<IPv4 address>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := storetest.Memory()
			if err := s.Commit(t.Context(), store.Put(tt.key, []byte(tt.value))); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), s, time.Now)
			if !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.key) {
				t.Errorf("open: %v; want ErrRecord about %s and %q", err, tt.key, tt.want)
			}
		})
	}
}

// TestRecordMarkLost: in a store that counts losses, one that cannot be decoded is a loss, the others are served, and its address
// can be leased again.
func TestRecordMarkLost(t *testing.T) {
	t.Parallel()
	s, _, err := logfile.Open(filepath.Join(t.TempDir(), "book.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	good := full()
	good.Addr = ip("10.0.0.77")
	for key, value := range map[string]string{key1: "\x09" + string(encode(full()))[1:], "lease/10.0.0.77": string(encode(good)), "lease/nowhere": "x"} {
		if err := s.Commit(t.Context(), store.Put(key, []byte(value))); err != nil {
			t.Fatal(err)
		}
	}
	b := openBook(t, s, time.Now)
	if all := b.All(); len(all) != 1 || all[0].Addr != good.Addr {
		t.Errorf("the book has %v", all)
	}
	if l := s.Losses(); len(l) != 1 || len(l[0].Keys) != 2 || !s.Doubtful(key1) {
		t.Errorf("lost %v", l)
	}
	c := &Change{Subnet: netip.MustParsePrefix("0.0.0.0/0"), Lease: full()}
	c.Start, c.Expiry = time.Now(), time.Now().Add(time.Hour)
	if b.Commit(t.Context(), []*Change{c}); c.Err != nil || s.Doubtful(key1) {
		t.Errorf("the address cannot be leased again: %v", c.Err)
	}
}

// FuzzRecord: no bytes bring the decoder down, and what it takes is written again as the same bytes.
func FuzzRecord(f *testing.F) {
	f.Add(encode(full()))
	f.Add(encode(Lease{State: Declined}))
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		s, blob, err := parseRecord(key1, value)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Errorf("error is %v, want ErrRecord", err)
			}
			return
		}
		again := append(appendStamp(nil, s), blob...)
		if !bytes.Equal(again, value) {
			t.Errorf("read % x, wrote % x", value, again)
		}
		if l := s.lease(1, blob); !bytes.Equal(encode(l), again) {
			t.Errorf("lease %+v is written as % x, want % x", l, encode(l), again)
		}
	})
}
