package lab_test

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// parse loads a lab of this text below a version and a domain.
func parse(t testing.TB, text string) *lab.Lab {
	t.Helper()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: lab.example\n"+text), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func addr(t *testing.T, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
