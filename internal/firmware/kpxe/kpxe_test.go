package kpxe

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text has much to copy, and places that look like calls.
func text() []byte {
	return []byte(strings.Repeat("to be, or not to be\n", 30) + "\xe8\x01\x02\x03\x04 and \xe9....." + strings.Repeat("that is the question\n", 20))
}

// program is a loader, a packed block, and another with data.
func program(t *testing.T, data []byte) []byte {
	t.Helper()
	p := []byte("loader" + strings.Repeat("\x00", 10))
	for _, d := range [][]byte{[]byte("first block"), data} {
		stream, err := encode(search(d, 0, len(d)), d)
		if err != nil {
			t.Fatal(err)
		}
		p = append(p, block(stream, lenSize+len(stream)+crcSize)...)
	}
	return p
}

// unpack returns the data of a program's last block.
func unpack(t *testing.T, program []byte) string {
	t.Helper()
	_, stream, err := lastBlock(program)
	if err != nil {
		t.Fatal(err)
	}
	_, data, err := decode(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStranger: a stream that liblzma made is understood, and comes out as liblzma would have it. Python made it, with
// FORMAT_RAW and preset 9 | PRESET_EXTREME, lc=2, lp=0, pb=0.
func TestStranger(t *testing.T) {
	t.Parallel()
	stream, want := read(t, "testdata/stranger.lzma"), read(t, "testdata/stranger.bin")
	steps, data, err := decode(stream)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(data)); diff != "" {
		t.Errorf("data (-want +got)\n%s", diff)
	}
	again, err := encode(steps, data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stream, again); diff != "" {
		t.Errorf("stream (-want +got)\n%s", diff)
	}
}

// TestLong: in a long stream everything occurs, such as a carry through bytes that are held back, and copies from far away.
func TestLong(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var data []byte
	for len(data) < 1<<14 {
		for range 1 + rnd.IntN(20) {
			data = append(data, byte(rnd.NormFloat64()*20))
		}
		n := rnd.IntN(min(len(data), 300))
		from := rnd.IntN(len(data) - n)
		data = append(data, data[from:from+n]...)
	}
	steps := search(data, 0, len(data))
	stream, err := encode(steps, data)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := decode(stream)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("another %d bytes come out of %d: %v", len(got), len(data), err)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	before := "kernel " + strings.Repeat("prompt --key 0x02 --timeout 2000\ndhcp || shell\n", 5)
	script := "#!ipxe\nprompt --key 0x02 --timeout 2000 || shell\ndhcp\nautoboot\n"
	after := "autoboot\nprompt --key 0x02 --timeout 2000 || shell\nend " + strings.Repeat("dhcp\nautoboot\n", 9)
	for _, tt := range []struct{ name, new string }{
		{"the same", script},
		{"a short script", "#!ipxe\ndhcp\n" + strings.Repeat("\n", len(script)-12)},
		{"other words", "#!ipxe\n" + strings.Repeat("dhcp || shell", 9)[:len(script)-7]},
		{"newlines", strings.Repeat("\n", len(script))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old := append(program(t, []byte(before+script+after)), make([]byte, 16)...) // so short a text may pack worse
			got, err := Replace(old, []byte(script), []byte(tt.new))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(old) {
				t.Errorf("%d bytes, want %d", len(got), len(old))
			}
			if diff := cmp.Diff(before+tt.new+after, unpack(t, got)); diff != "" {
				t.Errorf("unpacked (-want +got)\n%s", diff)
			}
			if tt.new == script && !bytes.Equal(got, old) {
				t.Error("what was not changed came out otherwise")
			}
			back, err := Replace(got, []byte(tt.new), []byte(tt.new))
			if err != nil || !bytes.Equal(back, got) {
				t.Errorf("what was changed once is not understood again: %v", err)
			}
		})
	}
}

func TestReplaceRefuses(t *testing.T) {
	t.Parallel()
	good := program(t, []byte("once, twice, twice, \xe8 call"))
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	for _, tt := range []struct {
		name     string
		program  []byte
		old, new string
		want     string
	}{
		{"other length", good, "once", "one", "lengths differ"},
		{"nowhere", good, "never", "never", "0 times"},
		{"twice", good, "twice", "TWICE", "2 times"},
		{"an operand", good, "call", "CALL", "a call or a jump"},
		{"no text", good, "once", "\xe9nce", "a call or a jump"},
		{"too long", good, "once, twice, twice, ", "qwertyuiopasdfghjklz", "would need"},
		{"broken", broken, "once", "ONCE", "no packed block"},
		{"nothing", nil, "once", "ONCE", "no packed block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Replace(tt.program, []byte(tt.old), []byte(tt.new))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestBuilt: the program that "make assets" made runs our script, and nothing else in it was changed since it was packed.
func TestBuilt(t *testing.T) {
	t.Parallel()
	built, err := os.ReadFile("../assets/undionly.kpxe")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no program is there; run make assets")
	}
	if err != nil {
		t.Fatal(err)
	}
	script := read(t, "../embed.ipxe")
	same, err := Replace(built, script, script)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(same, built) {
		t.Error("packed again, the program is another")
	}
}

// FuzzDecode: whatever bytes make something make the same again when they are coded again.
func FuzzDecode(f *testing.F) {
	f.Add(read(f, "testdata/stranger.lzma"))
	data := text()
	stream, err := encode(search(data, 0, len(data)), data)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stream)
	f.Add([]byte("\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		steps, data, err := decode(stream)
		if err != nil {
			return
		}
		again, err := encode(steps, data)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := decode(again)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("made %q, and then %q, %v", data, got, err)
		}
	})
}
