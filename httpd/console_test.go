package httpd_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
)

func TestConsoleAPI(t *testing.T) {
	c, err := api.NewClient(newAdminServer(t).socket, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = c.Console(t.Context(), "a", func(o api.ConsoleOutput) error {
		got = append(got, fmt.Sprintf("%s%q", o.State, o.Output))
		return nil
	})
	if diff := cmp.Diff([]string{`connected""`, `"\x1b[1mlogin:\xff"`}, got); err != nil || diff != "" {
		t.Errorf("console: %v (-want +got)\n%s", err, diff)
	}
	if err := c.Console(t.Context(), "metal", nil); err == nil {
		t.Error("a console of bare metal")
	}
	if err := c.TakeConsole(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := c.TakeConsole(t.Context(), "metal"); err == nil {
		t.Error("the console of bare metal was taken")
	}
	if err := c.TypeConsole(t.Context(), "a", []byte("root\r")); err != nil {
		t.Error(err)
	}
	if err := c.TypeConsole(t.Context(), "a", bytes.Repeat([]byte("x"), 128<<10)); err == nil {
		t.Error("input of 128 KiB at once was taken")
	}
	boots, err := c.ConsoleBoots(t.Context(), "a")
	if err != nil || len(boots) != 1 {
		t.Fatalf("boots %+v, %v", boots, err)
	}
	if text, err := c.ConsoleLog(t.Context(), "a", boots[0].Started); err != nil || string(text) != "\x1b[1mlogin: <b>" {
		t.Errorf("log %q, %v", text, err)
	}
	if _, err := c.ConsoleLog(t.Context(), "a", boots[0].Started.Add(1)); err == nil {
		t.Error("a log of a boot that there was not")
	}
	if none, err := c.ConsoleBoots(t.Context(), "b"); err != nil || none == nil || len(none) != 0 {
		t.Errorf("boots of a host without: %+v, %v; want an empty list", none, err)
	}
}
