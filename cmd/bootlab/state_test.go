package main

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

func TestInstallText(t *testing.T) {
	t.Parallel()
	const would = "would install themselves at their next network boot, which overwrites their disks"
	for _, tt := range []struct {
		hosts, pools []string
		how, want    string
	}{
		{[]string{"a"}, nil, "install themselves at their next network boot", "1 machine installs itself at its next network boot: a"},
		{[]string{"a"}, nil, would, "1 machine would install itself at its next network boot, which overwrites its disk: a"},
		{[]string{"a", "b"}, nil, would, "2 machines " + would + ": a, b"},
		{[]string{"a"}, []string{"p"}, would, "1 machine " + would + ": a, machines of pool p"},
		{nil, []string{"p"}, "install themselves at their next network boot", "Machines of 1 pool install themselves at their next network boot: machines of pool p"},
		{nil, nil, would, "No machines " + would + "."},
	} {
		var b strings.Builder
		installText(&b, tt.how, api.State{Install: tt.hosts, Pools: tt.pools})
		if got := strings.TrimSpace(b.String()); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
