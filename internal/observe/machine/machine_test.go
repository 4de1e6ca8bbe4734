package machine_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// boots is a boot under way that was last heard of some time ago, at a stage.
func boots(at event.Stage, silent time.Duration) timeline.Summary {
	b := timeline.Summary{Started: ago(silent + time.Minute), Active: ago(silent), At: at, Stage: at, Outcome: timeline.Booting, Asked: true, Fetched: at.Order() > event.StageAddress.Order()}
	if at == event.StageSystem { // of a machine that started from its disk
		b.Stage, b.Fetched = event.StageAddress, false
	}
	return b
}

// with is a boot that ended like that.
func with(b timeline.Summary, outcome, reason string) timeline.Summary {
	b.Outcome, b.Reason = outcome, reason
	if outcome == timeline.Done {
		b.Done = b.Active
	}
	return b
}

var (
	armed     = install.Status{State: install.Armed}
	rearmed   = install.Status{State: install.Armed, Since: ago(time.Hour)}
	booting   = install.Status{State: install.Booting, Since: ago(time.Hour)}
	installs  = install.Status{State: install.Installing, Since: ago(time.Hour)}
	installed = install.Status{State: install.Installed, Since: ago(time.Hour)}
	marked    = install.Status{State: install.Installed, Since: ago(time.Hour), ByAdmin: true}
	assumed   = install.Status{State: install.Installed, Since: ago(time.Hour), Assumed: true}
	live      = install.Status{State: install.Live}
	done      = with(boots(event.StageInstall, time.Hour), timeline.Done, "")
	passing   = machine.Check{Health: machine.CheckPassing, Since: ago(time.Minute)}
	pending   = machine.Check{Health: machine.CheckPending}
)

// backend is the check of a backend that does not answer.
var backend = machine.Check{
	Health: machine.CheckFailing, Since: ago(time.Hour), Reason: "no answer within 2s", Unreachable: true, Kind: lab.CheckTCP, Balancer: "web", Addr: netip.MustParseAddrPort("10.0.0.5:80"),
}

// failing is a check that has failed for so long.
func failing(since time.Duration) machine.Check {
	return machine.Check{Health: machine.CheckFailing, Since: ago(since), Reason: "connection refused"}
}

// TestOf is the table of the decision: what was observed, and what the machine is.
func TestOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		o     machine.Observation
		want  machine.Stage
		why   string // that Why contains
		stuck bool
	}{
		{name: "nothing was measured", o: machine.Observation{Install: live}, want: machine.Unknown, why: "no request of it was received"},
		{name: "armed, never seen", o: machine.Observation{Install: armed}, want: machine.Unknown, why: "no request of it was received"},
		{name: "armed by an admin, never seen", o: machine.Observation{Install: rearmed, Boot: timeline.Summary{Outcome: timeline.None, Active: ago(time.Hour), At: event.StageMachine}}, want: machine.Unknown, why: "no request of it was received"},
		{name: "armed, never seen, runs", o: machine.Observation{Install: armed, Power: machine.PowerOn}, want: machine.Unknown, why: "it runs, and no request of it was received"},
		{name: "done said by an admin, never seen", o: machine.Observation{Install: installed, Boot: timeline.Summary{Outcome: timeline.None, Active: ago(time.Hour), At: event.StageInstall, Stage: event.StageInstall}}, want: machine.Unknown, why: "it is installed, and no request"},
		{name: "done said by an admin, its system asks for an address", o: machine.Observation{Install: installed, Boot: timeline.Summary{Outcome: timeline.None, Active: ago(time.Hour), At: event.StageSystem}}, want: machine.Running},

		{name: "done said by an admin, its check passed and fails", o: machine.Observation{Install: installed, Boot: timeline.Summary{Outcome: timeline.None, Active: ago(time.Hour), At: event.StageInstall, Stage: event.StageInstall, Served: true}, Check: failing(time.Minute)}, want: machine.Failing, why: "fails its check"},
		{name: "done said by an admin, silent since a boot", o: machine.Observation{Install: marked, Boot: with(boots(event.StageScript, 2*time.Hour), timeline.Done, "")}, want: machine.Unknown, why: "it is installed, and no request"},
		{name: "done said by an admin, silent since a boot that failed", o: machine.Observation{Install: marked, Boot: with(boots(event.StageAddress, 2*time.Hour), timeline.Failed, "no offer")}, want: machine.Unknown, why: "it is installed, and no request"},
		{name: "done said by an admin, its system had an address before", o: machine.Observation{Install: marked, Boot: with(boots(event.StageSystem, 2*time.Hour), timeline.Done, "")}, want: machine.Running},
		{name: "done said by an admin, its system has an address since", o: machine.Observation{Install: marked, Boot: with(boots(event.StageSystem, time.Minute), timeline.Done, "")}, want: machine.Running},
		{name: "done said by an admin, and it boots from the network", o: machine.Observation{Install: marked, Boot: boots(event.StageAddress, time.Second)}, want: machine.Booting},
		{name: "done said by an admin, and its hypervisor says that it runs", o: machine.Observation{Power: machine.PowerOn, Install: marked, Boot: with(boots(event.StageScript, 2*time.Hour), timeline.Done, "")}, want: machine.Running},
		{name: "hypervisor not asked yet, done before", o: machine.Observation{Power: machine.PowerUnasked, Install: installed, Boot: done}, want: machine.Unknown, why: "has not answered yet"},
		{name: "hypervisor frozen", o: machine.Observation{Power: machine.PowerSilent, Problem: "no route", Install: installed, Boot: done}, want: machine.Unknown, why: "its hypervisor does not answer: no route", stuck: true},
		{name: "hypervisor frozen, check passes", o: machine.Observation{Power: machine.PowerSilent, Install: installed, Boot: done, Check: passing}, want: machine.Serving},
		{name: "off, says its hypervisor", o: machine.Observation{Power: machine.PowerOff, Install: installed, Boot: done}, want: machine.Off, why: "it is off"},
		{name: "off, and its last check passed", o: machine.Observation{Power: machine.PowerOff, Install: installed, Boot: done, Check: passing}, want: machine.Off},
		{name: "off in the middle of a boot", o: machine.Observation{Power: machine.PowerOff, Install: booting, Boot: boots(event.StageScript, time.Second)}, want: machine.Off},
		{name: "paused by its hypervisor", o: machine.Observation{Power: machine.PowerPaused, Install: installed, Boot: done}, want: machine.Stopped, why: "paused", stuck: true},
		{name: "crashed", o: machine.Observation{Power: machine.PowerCrashed, Install: installed, Boot: done}, want: machine.Off, why: "crashed"},
		{name: "absent", o: machine.Observation{Power: machine.PowerAbsent, Install: armed}, want: machine.Off, why: "does not exist"},
		{name: "absent, its turn comes", o: machine.Observation{Power: machine.PowerAbsent, Install: armed, Wait: "the control plane"}, want: machine.Waiting, why: "after the control plane"},
		{name: "bare metal, its turn comes", o: machine.Observation{Install: armed, Wait: "the control plane"}, want: machine.Waiting},
		{name: "runs, its turn comes", o: machine.Observation{Power: machine.PowerOn, Install: installed, Boot: done, Wait: "the control plane"}, want: machine.Running},
		{name: "being switched on", o: machine.Observation{Power: machine.PowerAbsent, Install: armed, Switching: true}, want: machine.Booting, why: "being switched on"},

		{name: "bare metal, switched on", o: machine.Observation{Install: armed, Switched: ago(2 * time.Minute)}, want: machine.Booting, why: "switched on"},
		{name: "bare metal, switched on and silent", o: machine.Observation{Install: armed, Switched: ago(2 * machine.PowerPatience)}, want: machine.Stopped, stuck: true},
		{name: "bare metal, power-cycled", o: machine.Observation{Install: armed, Boot: boots(event.StageMachine, 2*machine.FirmwarePatience)}, want: machine.Booting},
		{name: "bare metal, power-cycled and silent", o: machine.Observation{Install: armed, Boot: boots(event.StageMachine, 2*machine.PowerPatience)}, want: machine.Stopped, why: "more than 10 min", stuck: true},
		{name: "bare metal, its controller failed", o: machine.Observation{Install: armed, Boot: timeline.Summary{Outcome: timeline.Failed, Reason: "timeout", Active: ago(time.Minute)}}, want: machine.Stopped, why: "timeout", stuck: true},
		{name: "started, no packet", o: machine.Observation{Power: machine.PowerOn, Install: armed, Boot: boots(event.StageMachine, 2*machine.FirmwarePatience)}, want: machine.Stopped, stuck: true},
		{name: "installed and started, no packet", o: machine.Observation{Power: machine.PowerOn, Install: installed, Boot: boots(event.StageMachine, 2*machine.FirmwarePatience)}, want: machine.Running},

		{name: "boots", o: machine.Observation{Install: booting, Boot: boots(event.StageScript, time.Second)}, want: machine.Booting, why: "at stage script"},
		{name: "boots, silent beyond patience", o: machine.Observation{Install: booting, Boot: boots(event.StageScript, 2*machine.KernelPatience)}, want: machine.Stopped, why: "more than 5 min, at stage script", stuck: true},
		{name: "its own script, silent", o: machine.Observation{Install: live, OwnScript: true, Boot: boots(event.StageScript, 2*machine.KernelPatience)}, want: machine.Unknown, why: "an iPXE script of your own, and nothing was received since: what that boots from elsewhere is not seen here"},
		{name: "its own script, which loads a file here, silent", o: machine.Observation{Install: live, OwnScript: true, Boot: boots(event.StageFiles, 2*machine.KernelPatience)}, want: machine.Unknown, why: "script of your own"},
		{name: "its own script, just served", o: machine.Observation{Install: live, OwnScript: true, Boot: boots(event.StageScript, time.Second)}, want: machine.Booting},
		{name: "its own script, silent in its firmware", o: machine.Observation{Install: live, OwnScript: true, Boot: boots(event.StageFirmware, 2*machine.KernelPatience)}, want: machine.Stopped, stuck: true},
		{name: "installed, and a crash lost that event", o: machine.Observation{Install: installed, Document: true, Boot: boots(event.StageConfig, 2*time.Hour)}, want: machine.Running},
		{name: "installed, a crash lost that event, and a document was refused before", o: machine.Observation{Install: installed, Boot: with(boots(event.StageConfig, 2*time.Hour), timeline.Failed, "read twice")}, want: machine.Running},
		{name: "installed, and boots from the network again", o: machine.Observation{Install: installed, Boot: boots(event.StageScript, time.Second)}, want: machine.Booting},
		{name: "boot failed", o: machine.Observation{Install: booting, Boot: with(boots(event.StageFiles, time.Second), timeline.Failed, "no such file")}, want: machine.Stopped, why: "no such file", stuck: true},
		{name: "held", o: machine.Observation{Host: "d", Install: install.Status{State: install.Booting, Held: true}, Boot: boots(event.StageScript, time.Second)}, want: machine.Stopped, why: "too many attempts: bootlab install d --done if it has a system, else fix its profile, then bootlab install d, which overwrites its disk", stuck: true},
		{name: "held by a restore, and off", o: machine.Observation{Host: "d", Power: machine.PowerOff, Install: install.Status{State: install.Armed, Held: true, Why: "not in the backup"}}, want: machine.Stopped, why: "a restore holds it: bootlab install d --done if it has a system, else bootlab install d, which overwrites its disk", stuck: true},
		{name: "held by a restore, never seen", o: machine.Observation{Host: "d", Install: install.Status{State: install.Armed, Held: true, Why: "not in the backup"}}, want: machine.Stopped, why: "a restore holds it: bootlab install d --done if it has a system, else bootlab install d, which overwrites its disk", stuck: true},
		{name: "install state lost", o: machine.Observation{Host: "d", Install: install.Status{State: install.Unknown}}, want: machine.Unknown, why: "its install state was lost: put the state back first, if it or a backup exists (bootlab restore FILE; bootlab state says more); then bootlab install d --done if it has a system, else bootlab install d, which overwrites its disk", stuck: true},
		{name: "the state of another machine", o: machine.Observation{Host: "d", Install: install.Status{State: install.Unknown, Other: "e", Why: "this machine has a state as e"}}, want: machine.Unknown, why: "its install state is unknown, as this machine has a state as e: bootlab install d --done if", stuck: true},
		{name: "install state lost, and it runs", o: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Unknown}}, want: machine.Unknown, why: "was lost", stuck: true},
		{name: "install state lost, and it is off", o: machine.Observation{Power: machine.PowerOff, Install: install.Status{State: install.Unknown}}, want: machine.Stopped, why: "was lost", stuck: true},
		{name: "of a virtual machine that was deleted", o: machine.Observation{Power: machine.PowerAbsent, Install: armed, Boot: with(boots(event.StageFiles, time.Second), timeline.Ended, "")}, want: machine.Off},

		{name: "installs", o: machine.Observation{Install: installs, Boot: boots(event.StageConfig, time.Minute)}, want: machine.Installing},
		{name: "installs, its installer asks for an address", o: machine.Observation{Install: installs, Document: true, Boot: boots(event.StageInstall, time.Minute)}, want: machine.Installing},
		{name: "installs, silent beyond patience", o: machine.Observation{Install: installs, Boot: boots(event.StageConfig, 2*machine.InstallPatience)}, want: machine.Stopped, why: "more than 1 h", stuck: true},
		{name: "counts as installed", o: machine.Observation{Install: assumed, Boot: boots(event.StageInstall, 2*machine.InstallPatience)}, want: machine.Unknown, why: "install_timeout"},
		{name: "counts as installed, a check passes", o: machine.Observation{Install: assumed, Boot: boots(event.StageInstall, time.Hour), Check: passing}, want: machine.Serving},
		{name: "counts as installed, its check fails", o: machine.Observation{Install: assumed, Boot: boots(event.StageInstall, time.Hour), Check: failing(2 * time.Hour)}, want: machine.Failing, why: "fails its check"},
		{name: "counts as installed, and its system has an address", o: machine.Observation{Install: assumed, Boot: with(boots(event.StageInstall, time.Hour), timeline.Done, "")}, want: machine.Running},
		{name: "counts as installed, and it boots from the network", o: machine.Observation{Install: assumed, Boot: boots(event.StageScript, time.Second)}, want: machine.Booting},
		{name: "from its disk though armed", o: machine.Observation{Install: armed, Boot: boots(event.StageSystem, time.Minute)}, want: machine.Stopped, why: "from its disk, not from the network", stuck: true},
		{name: "from its disk though armed, and its system runs", o: machine.Observation{Install: armed, Boot: with(boots(event.StageSystem, time.Minute), timeline.Done, "")}, want: machine.Stopped, why: "from its disk, not from the network", stuck: true},
		{name: "its system renews its lease, armed", o: machine.Observation{Install: armed, Boot: timeline.Summary{Started: ago(time.Hour), Active: now, At: event.StageSystem, Stage: event.StageAddress, Outcome: timeline.Booting}}, want: machine.Running},

		{name: "done, no balancer", o: machine.Observation{Install: installed, Boot: done}, want: machine.Running},
		{name: "done, not checked yet", o: machine.Observation{Install: installed, Boot: done, Check: pending}, want: machine.Unknown, why: "no check has ended yet"},
		{name: "done, its check has failed since before", o: machine.Observation{Install: install.Status{State: install.Installed, Since: ago(time.Minute)}, Boot: done, Check: failing(2 * time.Hour)}, want: machine.Starting, why: "connection refused"},
		{name: "done long ago, never passed", o: machine.Observation{Install: installed, Boot: done, Check: failing(2 * time.Hour)}, want: machine.Failing, why: "fails its check: connection refused"},
		{name: "done, then its check fails", o: machine.Observation{Install: installed, Boot: done, Check: failing(time.Second)}, want: machine.Failing},
		{name: "live system", o: machine.Observation{Install: live, Boot: boots(event.StageConfig, 2*time.Hour)}, want: machine.Running},
		{name: "made from an image", o: machine.Observation{Power: machine.PowerOn, Install: live, Boot: boots(event.StageMachine, time.Second)}, want: machine.Booting},
		{name: "made from an image, its system has an address", o: machine.Observation{Power: machine.PowerOn, Install: live, Boot: boots(event.StageSystem, time.Minute)}, want: machine.Running},

		{name: "check passes, never booted", o: machine.Observation{Install: armed, Check: passing}, want: machine.Serving},
		{name: "check passes, an armed control plane", o: machine.Observation{Role: lab.RoleControlPlane, Install: rearmed, Check: passing}, want: machine.Booting, why: "its former system serves"},
		{name: "check passes, a control plane as it was found", o: machine.Observation{Role: lab.RoleControlPlane, Install: armed, Check: passing}, want: machine.Serving},
		{name: "check passes, a control plane that installs", o: machine.Observation{Host: "cp", Role: lab.RoleControlPlane, Install: installs, Boot: boots(event.StageConfig, time.Minute), Check: passing}, want: machine.Installing, why: "has not reported"},
		{name: "check passes, an armed worker", o: machine.Observation{Role: lab.RoleWorker, Install: rearmed, Check: passing}, want: machine.Serving},
		{name: "check passes, a worker that boots", o: machine.Observation{Role: lab.RoleWorker, Power: machine.PowerOn, Install: booting, Boot: boots(event.StageScript, time.Minute), Check: passing}, want: machine.Serving},

		{name: "of a balancer alone, its check fails", o: machine.Observation{Install: live, Elsewhere: true, Check: backend}, want: machine.Failing, why: "it does not answer at its backend address 10.0.0.5:80: the tcp check of balancer web fails: no answer within 2s"},
		{name: "of a balancer alone, its check passes", o: machine.Observation{Install: live, Elsewhere: true, Check: passing}, want: machine.Serving},
		{name: "of a balancer alone, not checked yet", o: machine.Observation{Install: live, Elsewhere: true, Check: pending}, want: machine.Unknown, why: "no request of it was received"},
		{name: "of a balancer alone, off", o: machine.Observation{Power: machine.PowerOff, Install: live, Elsewhere: true, Check: backend}, want: machine.Off},
		{name: "to be installed, its check fails", o: machine.Observation{Install: armed, Check: backend}, want: machine.Unknown, why: "no request of it was received"},

		{name: "bootstrap gone", o: machine.Observation{Role: lab.RoleBootstrap, Power: machine.PowerOff, Install: installed, Boot: done, Gone: true}, want: machine.Gone},
		{name: "address conflict, check passes", o: machine.Observation{Install: installed, Boot: done, Check: passing, Conflict: "02:00:00:00:00:09"}, want: machine.Failing, why: "02:00:00:00:00:09", stuck: true},
		{name: "address conflict, runs", o: machine.Observation{Install: installed, Boot: done, Conflict: "02:00:00:00:00:09"}, want: machine.Failing, stuck: true},
		{name: "address conflict, installs", o: machine.Observation{Install: installs, Boot: boots(event.StageConfig, time.Minute), Conflict: "02:00:00:00:00:09"}, want: machine.Installing},
		{name: "address conflict, held by a restore", o: machine.Observation{Install: install.Status{State: install.Armed, Held: true, Why: "not in the backup"}, Conflict: "02:00:00:00:00:09"}, want: machine.Stopped, why: "a restore holds it", stuck: true},
		{name: "address conflict, never seen", o: machine.Observation{Install: armed, Conflict: "02:00:00:00:00:09"}, want: machine.Failing, why: "another machine uses its address: 02:00:00:00:00:09", stuck: true},
		{name: "address conflict, never seen, being switched on", o: machine.Observation{Install: armed, Switching: true, Conflict: "02:00:00:00:00:09"}, want: machine.Booting},
		{name: "address conflict, off", o: machine.Observation{Power: machine.PowerOff, Install: installed, Boot: done, Conflict: "02:00:00:00:00:09"}, want: machine.Off},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := machine.Of(tt.o, now)
			if s.Stage != tt.want || !strings.Contains(s.Why, tt.why) || s.Stuck != tt.stuck || s.Why == "" {
				t.Errorf("%+v, want %s because %q, stuck %v", s, tt.want, tt.why, tt.stuck)
			}
			if s.Stage.Good() != (s.Waits == "") && s.Stage != machine.Gone {
				t.Errorf("%s waits for %q", s.Stage, s.Waits)
			}
		})
	}
}

// TestNothingIsGreenUnmeasured: whatever is stored of a machine, it is not good while its hypervisor or its check has not answered yet.
func TestNothingIsGreenUnmeasured(t *testing.T) {
	t.Parallel()
	for _, i := range []install.Status{armed, rearmed, booting, installs, installed, live} {
		for _, b := range []timeline.Summary{{}, done, boots(event.StageConfig, time.Hour), boots(event.StageSystem, time.Hour)} {
			for _, role := range []string{"", lab.RoleBootstrap, lab.RoleControlPlane, lab.RoleWorker} {
				for name, o := range map[string]machine.Observation{"hypervisor": {Power: machine.PowerUnasked}, "check": {Check: pending}} {
					o.Role, o.Install, o.Boot = role, i, b
					if s := machine.Of(o, now); s.Stage.Good() {
						t.Errorf("the %s has not answered: %s (%s) of %q, install %s, boot %+v", name, s.Stage, s.Why, role, i.State, b)
					}
				}
			}
		}
	}
}
