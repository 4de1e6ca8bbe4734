package virt

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzFrame reads frames of anything: an error or a value that is written and read again unchanged.
func FuzzFrame(f *testing.F) {
	var seed bytes.Buffer
	if err := writeFrame(&seed, response{Result: json.RawMessage(`[{"Name":"a","State":"off"}]`)}); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second response
		if readFrame(bytes.NewReader(data), &first) != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, first); err != nil {
			t.Fatal(err)
		}
		wrote := again.String()
		if err := readFrame(&again, &second); err != nil {
			t.Fatal(err)
		}
		if err := writeFrame(&again, second); err != nil || again.String() != wrote {
			t.Errorf("%q became %q (%v)", wrote, again.String(), err)
		}
	})
}
