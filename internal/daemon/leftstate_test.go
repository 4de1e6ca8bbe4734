package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/netns"
)

// restarted stops the daemon, and starts it again after between.
func (r *rig) restarted(between func() error) {
	r.t.Helper()
	if err := errors.Join(r.stop(), between()); err != nil {
		r.t.Fatal(err)
	}
	r.log = &buffer{}
	r.start()
}

// TestStateLeft: without state.db and both markers, what else a daemon has left in the state folder shows the loss, until it is accepted.
func TestStateLeft(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.54.0.1"
	r := newRig(t, addr)
	dir := r.withState()
	// What others put there is no sign of a daemon: mkfs, an admin, ssh, systemd.
	for _, name := range []string{"lost+found", ".ssh", "mirrors"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(strings.Repeat("token", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	if s, err := r.client.State(t.Context()); err != nil || s.Condition != api.StateFirst || !slices.Equal(s.Install, []string{"a"}) {
		t.Fatalf("the first start: %+v, %v", s, err)
	}
	lose := func() error {
		return errors.Join(os.Remove(filepath.Join(dir, logfile.Name)), os.Remove(filepath.Join(dir, identity.InFolder)), os.Remove(identity.BesideLab(r.lab)))
	}
	// An empty marker beside the lab is what an admin makes for a user who may not create it.
	r.restarted(func() error { return errors.Join(lose(), os.WriteFile(identity.BesideLab(r.lab), nil, 0o600)) })
	const why = "the state folder has no state, but "
	for range 2 {
		s, err := r.client.State(t.Context())
		if err != nil || s.Condition != api.StateLost || !strings.HasPrefix(s.Reason, why) || !strings.Contains(s.Reason, "/consoles shows that there was one") || !slices.Equal(s.Unknown, []string{"a"}) {
			t.Errorf("state: %+v, %v", s, err)
		}
		if !strings.Contains(s.Advice, "put its folder back") {
			t.Errorf("advice: %s", s.Advice)
		}
		for sentence := range strings.SplitSeq(s.Advice, ". ") { // read at three in the morning
			if n := len(strings.Fields(sentence)); n > 20 {
				t.Errorf("a sentence of %d words: %s", n, sentence)
			}
		}
		if body := r.get("http://" + addr + ":9680/readyz"); !strings.Contains(body, "\nstate: install states were lost") {
			t.Errorf("readyz:\n%s", body)
		}
		r.restarted(func() error { return nil })
	}
	if _, err := r.client.AcceptState(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	r.restarted(func() error { return nil })
	if s, err := r.client.State(t.Context()); err != nil || s.Condition != api.StateKnown || !slices.Equal(s.Install, []string{"a"}) {
		t.Errorf("after it was accepted: %+v, %v", s, err)
	}
}

// TestStateFolderContents: what a daemon makes in the state folder is in the list of package statefile, with what it shows of a former daemon.
func TestStateFolderContents(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.54.1.1")
	dir := r.withState()
	r.start()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"consoles", "state.db", "state.marker", "token"}; !slices.Equal(names, want) { // another one belongs to that list, too
		t.Errorf("%q, want %q", names, want)
	}
}
