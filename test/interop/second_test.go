package interop

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestSecondDaemon: a second daemon says in one line that another one serves, which, and what to do.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.94.9")
	d := start(t, l)
	other := newLab(t, "10.94.8")
	other.replace(strings.ReplaceAll(other.text(), "10.94.8.1:", "10.94.9.1:"))
	which := fmt.Sprintf("another bootlab (pid %d, lab file %s)", d.cmd.Process.Pid, l.path())
	for _, tt := range []struct {
		name string
		lab  *labFile
		user string // empty: root
		want []string
	}{
		{"same lab", l, "", []string{which, "already serves", "appliance.admin_socket", "bootlab reload"}},
		{"another lab", other, "", []string{which, "appliance.dns", "stop it, or set other addresses"}},
		{"same lab without root", l, "12345", []string{which, "appliance.admin_socket", "bootlab reload"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{d.cmd.Path, "serve", "--log-level", "error", "--lab", tt.lab.path()}
			if tt.user != "" {
				netns.Need(t, "setpriv")
				args = append([]string{"setpriv", "--reuid=" + tt.user, "--regid=" + tt.user, "--clear-groups", "--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"}, args...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			b, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
			out := string(b)
			if err == nil || err.Error() != "exit status 1" {
				t.Errorf("%v, want exit status 1", err)
			}
			if n := strings.Count(strings.TrimSpace(out), "\n"); n != 0 {
				t.Errorf("%d lines more than one", n)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("lacks %q", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
