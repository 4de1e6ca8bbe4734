package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// TestStartWhileStopping: a start beside the daemon of the same lab that still drains waits until it has ended, and serves then. One that
// is stopped while it waits says which daemon is stopping, since when, and what to do.
func TestStartWhileStopping(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.94.10")
	const image = "files/public/image"
	l.file(image, nil)
	const size = 40 << 20 // more than the kernel's buffers take at once
	if err := os.Truncate(filepath.Join(l.dir, image), size); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:0a", "10.94.10.2")
	end := m.download(t, image)
	d.signal(syscall.SIGTERM)
	d.until("it stops", func() bool { return !d.status().Stopping.IsZero() })
	if out, err := d.bootlab("status"); err != nil || !strings.Contains(out, "stopping since ") {
		t.Errorf("status: %v\n%s", err, out)
	}

	impatient, next := &daemon{labFile: l, client: d.client, addr: d.addr, log: &output{}}, &daemon{labFile: l, client: d.client, addr: d.addr, log: &output{}}
	for _, other := range []*daemon{impatient, next} {
		t.Cleanup(other.kill)
		other.launch()
		other.logged("this start waits until it has ended")
	}
	impatient.signal(syscall.SIGTERM)
	if code := impatient.exit(patience); code != 1 {
		t.Errorf("a start that was stopped while it waited: exit code %d", code)
	}
	for _, want := range []string{fmt.Sprintf("the daemon of this lab (pid %d) is still stopping, since 20", d.cmd.Process.Pid), "start again once it has ended"} {
		if !strings.Contains(impatient.log.String(), want) {
			t.Errorf("lacks %q:\n%s", want, impatient.log)
		}
	}
	if n, err := end(); err != nil || n != size {
		t.Errorf("the transfer: %d bytes, %v", n, err)
	}
	if code := d.exit(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	next.until("the next daemon serves", func() bool {
		s, err := next.client.Status(t.Context())
		return err == nil && s.Ready() && s.Stopping.IsZero()
	})
	if n := strings.Count(next.log.String(), "this start waits"); n != 1 {
		t.Errorf("the wait is logged %d times:\n%s", n, next.log)
	}
}
