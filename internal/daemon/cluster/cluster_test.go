package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

var (
	now   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	asked = cluster.Record{Up: now.Add(-time.Hour)}
)

// prod is a cluster with a bootstrap machine, three control-plane machines and a worker.
func prod() *lab.Cluster {
	c := &lab.Cluster{Name: "prod", Kind: lab.OpenShift}
	for _, h := range []lab.Host{
		{Name: "boot", Role: lab.RoleBootstrap}, {Name: "cp0", Role: lab.RoleControlPlane}, {Name: "cp1", Role: lab.RoleControlPlane},
		{Name: "cp2", Role: lab.RoleControlPlane}, {Name: "w0", Role: lab.RoleWorker},
	} {
		c.Hosts = append(c.Hosts, &h)
	}
	return c
}

// observe returns what is observed of all machines of prod: the same, but for what change does.
func observe(o cluster.Observed, change map[string]func(*cluster.Observed)) map[string]cluster.Observed {
	all := map[string]cluster.Observed{}
	for _, h := range prod().Hosts {
		o := o
		if f := change[h.Name]; f != nil {
			f(&o)
		}
		all[h.Name] = o
	}
	return all
}

// under is a boot under way, at a stage.
func under(stage event.Stage) timeline.Summary {
	return timeline.Summary{Started: now.Add(-time.Minute), Active: now, Stage: stage, At: stage, Outcome: timeline.Booting, Fetched: true}
}

// failed is a boot that failed now.
func failed(reason string) timeline.Summary {
	b := under("files")
	b.Started, b.Outcome, b.Reason = now, timeline.Failed, reason
	return b
}

// installedBoot is one that was done a minute ago.
var installedBoot = timeline.Summary{Started: now.Add(-time.Minute), Active: now.Add(-time.Minute), Done: now.Add(-time.Minute), Stage: "install", At: "install", Outcome: timeline.Done, Fetched: true}

func actions(s cluster.State) string {
	var out []string
	for _, a := range s.Actions {
		out = append(out, string(a.Verb)+" "+a.Host.Name)
	}
	return strings.Join(out, ", ")
}

func stages(s cluster.State) string {
	var out []string
	for _, m := range s.Machines {
		out = append(out, m.Host.Name+" "+string(m.Stage))
	}
	return strings.Join(out, ", ")
}

// TestOrder follows a cluster of virtual machines from nothing to ready.
func TestOrder(t *testing.T) {
	t.Parallel()
	absent := cluster.Observed{Observation: machine.Observation{Power: machine.PowerAbsent, Install: install.Status{State: install.Armed}}, Control: true}
	failing := func(o *cluster.Observed) {
		o.Check = machine.Check{Health: machine.CheckFailing, Since: now.Add(-time.Minute), Reason: "connection refused"}
	}
	up := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Boot: installedBoot}, Control: true}
	serves := func(o *cluster.Observed) { *o = up; o.Check = machine.Check{Health: machine.CheckPassing, Since: now} }
	starts := func(o *cluster.Observed) { *o = up; failing(o) }
	boots := func(o *cluster.Observed) {
		o.Power, o.Install.State, o.Boot = machine.PowerOn, install.Booting, under("script")
	}
	for _, step := range []struct {
		name           string
		observed       map[string]cluster.Observed
		record         cluster.Record
		phase          cluster.Phase
		stages, action string
		waits          string
	}{
		{"nobody asked", observe(absent, nil), cluster.Record{}, cluster.PhaseDown,
			"boot off, cp0 off, cp1 off, cp2 off, w0 off", "", "bootlab up prod"},
		{"it boots", observe(absent, map[string]func(*cluster.Observed){"boot": boots, "cp0": boots, "cp1": boots, "cp2": boots}), asked, cluster.PhaseBootstrap,
			"boot booting, cp0 booting, cp1 booting, cp2 booting, w0 waiting", "", "the control plane: 0 of 3 machines serve"},
		{"asked", observe(absent, nil), asked, cluster.PhaseBootstrap,
			"boot booting, cp0 booting, cp1 booting, cp2 booting, w0 waiting", "switch on boot, switch on cp0, switch on cp1, switch on cp2", "0 of 3"},
		{"two start, one serves", observe(absent, map[string]func(*cluster.Observed){"boot": serves, "cp0": serves, "cp1": starts, "cp2": starts}), asked,
			cluster.PhaseBootstrap, "boot serving, cp0 serving, cp1 starting, cp2 starting, w0 waiting", "", "1 of 3"},
		{"the control plane serves", observe(absent, map[string]func(*cluster.Observed){"boot": serves, "cp0": serves, "cp1": serves, "cp2": starts}), asked,
			cluster.PhaseWorkers, "boot serving, cp0 serving, cp1 serving, cp2 starting, w0 booting", "switch on w0", "cp2"},
		{"all but the bootstrap are where they should be", observe(up, map[string]func(*cluster.Observed){"boot": serves, "cp0": serves, "cp1": serves, "cp2": serves}), asked,
			cluster.PhaseWorkers, "boot serving, cp0 serving, cp1 serving, cp2 serving, w0 running", "", "the bootstrap to complete"},
		{"the bootstrap fails a moment ago", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Check.Since = now }, "cp0": serves, "cp1": serves, "cp2": serves}), asked,
			cluster.PhaseWorkers, "boot failing, cp0 serving, cp1 serving, cp2 serving, w0 running", "", "15 seconds"},
		{"the bootstrap stops to serve", observe(up, map[string]func(*cluster.Observed){"boot": starts, "cp0": serves, "cp1": serves, "cp2": serves}), asked,
			cluster.PhaseWorkers, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "remove from balancers boot, switch off boot", "boot: its power: it is being switched off"},
		{"it is off", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Power = machine.PowerOff }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Removed: now}, cluster.PhaseReady, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "", ""},
		{"a bare-metal bootstrap that was switched on", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Power = "" }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Removed: now, Switched: map[string]time.Time{"boot": asked.Up}}, cluster.PhaseWorkers, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "switch off boot", "boot: its power: it is being switched off"},
		{"a bare-metal bootstrap that is off, or that somebody else switched on", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Power = "" }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Removed: now}, cluster.PhaseReady, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "", ""},
		{"the control plane is lost later", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Power = machine.PowerOff }, "cp0": starts, "cp1": starts, "cp2": serves}),
			cluster.Record{Removed: now}, cluster.PhaseNotServing, "boot gone, cp0 starting, cp1 starting, cp2 serving, w0 running", "", "1 of 3"},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.Assess(prod(), step.observed, step.record, now)
			if s.Phase != step.phase || stages(s) != step.stages || actions(s) != step.action || !strings.Contains(s.Waits, step.waits) || step.waits == "" && s.Waits != "" {
				t.Errorf("phase %s (waits for %q)\n%s\nactions %q", s.Phase, s.Waits, stages(s), actions(s))
			}
		})
	}
}

// TestWaits are the words for what machines and their cluster wait for.
func TestWaits(t *testing.T) {
	t.Parallel()
	one := &lab.Cluster{Name: "edge", Kind: lab.OpenShift, Hosts: []*lab.Host{{Name: "node", Role: lab.RoleControlPlane}}}
	boot := under("script")
	for name, tt := range map[string]struct {
		o            cluster.Observed
		record       cluster.Record
		machine, all string
	}{
		"down":                     {cluster.Observed{Observation: machine.Observation{Power: machine.PowerAbsent, Install: install.Status{State: install.Armed}}, Control: true}, cluster.Record{}, "bootlab up edge", "bootlab up edge"},
		"booting":                  {cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Booting}, Boot: boot}}, asked, "its boot, at stage script", "the control plane: 0 of 1 machine serves"},
		"installing":               {cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installing}, Boot: boot}}, asked, "its installer, at stage script", "the control plane: 0 of 1 machine serves"},
		"starting":                 {cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Boot: installedBoot, Check: machine.Check{Health: machine.CheckFailing, Reason: "connection refused"}}}, asked, "its check: connection refused", "the control plane: 0 of 1 machine serves"},
		"serves, installer silent": {cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installing}, Boot: boot, Check: machine.Check{Health: machine.CheckPassing}}}, asked, "its installer to report that it is done; if it is installed: bootlab install node --done", "the control plane: 0 of 1 machine serves"},
		"serves, armed":            {cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Armed, Since: now}, Boot: boot, Check: machine.Check{Health: machine.CheckPassing}}}, asked, "its network boot: it is armed, and its former system serves", "the control plane: 0 of 1 machine serves"},
		"by hand":                  {cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed}}}, asked, "an admin has to switch it on: it has no bmc and is no virtual machine", "the control plane: 0 of 1 machine serves"},
	} {
		s := cluster.Assess(one, map[string]cluster.Observed{"node": tt.o}, tt.record, now)
		if s.Machines[0].Waits != tt.machine || s.Waits != tt.all {
			t.Errorf("%s: %q and %q, want %q and %q", name, s.Machines[0].Waits, s.Waits, tt.machine, tt.all)
		}
	}
}

// TestBootstrapStays: a blip of its check, a control plane of an older installation, and a bootstrap that was armed again do not take it out.
func TestBootstrapStays(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Check: machine.Check{Health: machine.CheckPassing, Since: now.Add(-time.Hour)}}}
	blip := func(o *cluster.Observed) {
		o.Check = machine.Check{Health: machine.CheckFailing, Since: now.Add(-time.Second)}
	}
	down := func(o *cluster.Observed) {
		o.Check = machine.Check{Health: machine.CheckFailing, Since: now.Add(-time.Hour)}
	}
	armed := func(o *cluster.Observed) { o.Install = install.Status{State: install.Armed, Since: now} }
	for _, tt := range []struct {
		name   string
		change map[string]func(*cluster.Observed)
		record cluster.Record
		want   string
	}{
		{"a blip", map[string]func(*cluster.Observed){"boot": blip}, cluster.Record{}, ""},
		{"it is down", map[string]func(*cluster.Observed){"boot": down}, cluster.Record{}, "remove from balancers boot"},
		{"it was taken out", map[string]func(*cluster.Observed){"boot": down}, cluster.Record{Removed: now}, ""},
		{"it is armed", map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { down(o); armed(o) }}, cluster.Record{}, ""},
		{"it was removed, and is armed again", map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { down(o); armed(o) }}, cluster.Record{Removed: now.Add(-time.Minute)}, "add to balancers boot"},
		{"the others are installed again", map[string]func(*cluster.Observed){"boot": down, "cp0": armed, "cp1": armed, "cp2": armed}, cluster.Record{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if s := cluster.Assess(prod(), observe(up, tt.change), tt.record, now); actions(s) != tt.want {
				t.Errorf("actions %q, want %q; %s", actions(s), tt.want, stages(s))
			}
		})
	}
}

// TestImageMachine: a machine that is made from an image runs once its system has an address; no installer and no document say so.
func TestImageMachine(t *testing.T) {
	t.Parallel()
	boot := timeline.Summary{Started: now, Active: now, Stage: "address", Outcome: timeline.Booting}
	for _, tt := range []struct {
		at      event.Stage
		outcome string
		want    machine.Stage
	}{{"address", timeline.Booting, machine.Booting}, {event.StageSystem, timeline.Booting, machine.Running}, {event.StageSystem, timeline.Failed, machine.Stopped}} {
		boot.At, boot.Outcome = tt.at, tt.outcome
		s := cluster.Assess(prod(), map[string]cluster.Observed{"w0": {Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Live}, Boot: boot}}}, asked, now)
		if m := s.Machines[4]; m.Stage != tt.want {
			t.Errorf("%+v: %+v", tt, m)
		}
	}
}

// TestStuck: a machine that goes on only if somebody does something says what.
func TestStuck(t *testing.T) {
	t.Parallel()
	metal := cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed}}}
	for name, tt := range map[string]struct {
		o    cluster.Observed
		want string
	}{
		"metal without a controller": {metal, "no bmc"},
		"held":                       {cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Booting, Held: true}}}, "bootlab install cp0"},
		"held by a restore":          {cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed, Held: true, Why: "not in the backup"}}}, "a restore holds it: bootlab install cp0 --done if it has a system, else"},
		"lost":                       {cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Unknown}}}, "--done"},
		"a failed boot":              {cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Booting}, Boot: failed("no such file")}}, "no such file"},
		"a silent hypervisor":        {cluster.Observed{Observation: machine.Observation{Power: machine.PowerSilent, Install: metal.Install}, Control: true}, "hypervisor"},
		"a failed action":            {cluster.Observed{Observation: machine.Observation{Power: machine.PowerAbsent, Install: metal.Install}, Control: true, Failed: "no such bridge"}, "no such bridge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cluster.Assess(prod(), map[string]cluster.Observed{"cp0": tt.o}, asked, now)
			if m := s.Machines[1]; !m.Stuck || !strings.Contains(m.Waits, tt.want) {
				t.Errorf("%+v, want one that is stuck and says %q", m, tt.want)
			}
		})
	}
}

// TestDown: a cluster whose machines were shut down is down, though its bootstrap machine was removed long ago, and though the last checks passed.
func TestDown(t *testing.T) {
	t.Parallel()
	off := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOff, Install: install.Status{State: install.Installed}, Boot: installedBoot}, Control: true}
	passed := off
	passed.Check.Health, passed.Ingress.Health = machine.CheckPassing, machine.CheckPassing
	for name, o := range map[string]cluster.Observed{"checks have failed": off, "the last checks passed": passed} {
		s := cluster.Assess(prod(), observe(o, nil), cluster.Record{Removed: now.Add(-time.Hour)}, now)
		if want := "boot gone, cp0 off, cp1 off, cp2 off, w0 off"; s.Phase != cluster.PhaseDown || stages(s) != want || s.Serving != 0 || len(s.Actions) > 0 {
			t.Errorf("%s: %s, %d serve: %s; %s", name, s.Phase, s.Serving, stages(s), actions(s))
		}
	}
}

// TestDeadController: a bare-metal machine whose controller did not switch it on is not known to boot, and is tried again; once it was seen to
// boot, or its controller did, it is not.
func TestDeadController(t *testing.T) {
	t.Parallel()
	at := now.Add(-time.Minute)
	record := cluster.Record{Up: asked.Up, Switched: map[string]time.Time{"cp0": at}}
	dead := cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed}}, Control: true, Failed: "controller https://10.0.0.9: no route to host"}
	boots, switched := dead, dead
	boots.Boot = under("script")
	boots.Boot.Started = now
	switched.Failed = ""
	for _, tt := range []struct {
		name   string
		o      cluster.Observed
		stage  machine.Stage
		stuck  bool
		action bool
	}{{"dead", dead, machine.Unknown, true, true}, {"it boots all the same", boots, machine.Booting, false, false}, {"switched on", switched, machine.Booting, false, false}} {
		s := cluster.Assess(prod(), map[string]cluster.Observed{"cp0": tt.o}, record, now)
		m := s.Machines[1]
		if m.Stage != tt.stage || m.Stuck != tt.stuck || strings.Contains(actions(s), "switch on cp0") != tt.action || tt.stuck != strings.Contains(m.Waits, "no route") {
			t.Errorf("%s: %+v; %s", tt.name, m, actions(s))
		}
	}
}

// TestAnswers: installed bare-metal machines whose servers were stopped are on, as they refuse connections: while their cluster is brought up they
// are what they were before. The controller of one that does not answer is asked.
func TestAnswers(t *testing.T) {
	t.Parallel()
	old := installedBoot
	old.Started, old.Active, old.Done = now.Add(-48*time.Hour), now.Add(-48*time.Hour), now.Add(-48*time.Hour)
	refused := machine.Check{Health: machine.CheckFailing, Since: now, Reason: "connection refused"}
	all := observe(cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Installed}, Boot: old, Check: refused}, Control: true}, map[string]func(*cluster.Observed){
		"cp1": func(o *cluster.Observed) { o.Check.Reason, o.Check.Unreachable = "i/o timeout", true },
		"w0":  func(o *cluster.Observed) { o.Check, o.Ingress = machine.Check{}, refused },
	})
	s := cluster.Assess(prod(), all, asked, now)
	if want := "boot failing, cp0 failing, cp1 booting, cp2 failing, w0 running"; stages(s) != want || actions(s) != "switch on if it is off cp1" {
		t.Errorf("%s; %s; want %s", stages(s), actions(s), want)
	}
}

// TestRouter: a cluster whose router serves on no machine is not ready; one machine is enough.
func TestRouter(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Installed}, Check: machine.Check{Health: machine.CheckPassing, Since: now}}}
	c := prod()
	c.Hosts = c.Hosts[1:]
	for n, want := range []cluster.Phase{cluster.PhaseWorkers, cluster.PhaseReady} {
		all := map[string]cluster.Observed{}
		for _, h := range c.Hosts {
			all[h.Name] = up
		}
		worker := up
		worker.Check, worker.Ingress = machine.Check{}, machine.Check{Health: machine.CheckFailing}
		if n > 0 {
			worker.Ingress.Health = machine.CheckPassing
		}
		all["w0"] = worker
		if s := cluster.Assess(c, all, asked, now); s.Phase != want {
			t.Errorf("%d routers: %s (%s), want %s", n, s.Phase, s.Waits, want)
		}
	}
}

// TestBootstrapReports: where the API server is asked, its ConfigMap decides. A bootstrap whose own check fails stays until that says
// complete, and one whose check passes is removed then; a machine that was switched off is removed whatever it says.
func TestBootstrapReports(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Check: machine.Check{Health: machine.CheckPassing, Since: now.Add(-time.Hour)}}}
	boot := func(reported cluster.Completion, change func(*cluster.Observed)) map[string]func(*cluster.Observed) {
		return map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) {
			o.Reported = reported
			if change != nil {
				change(o)
			}
		}}
	}
	down := func(o *cluster.Observed) { o.Check.Health = machine.CheckFailing }
	all := func(changed map[string]func(*cluster.Observed)) map[string]func(*cluster.Observed) {
		for _, h := range []string{"cp0", "cp1", "cp2"} {
			changed[h] = down
		}
		return changed
	}
	for _, tt := range []struct {
		name   string
		change map[string]func(*cluster.Observed)
		want   string
	}{
		{"not reported, and it serves", boot(cluster.NotReported, nil), ""},
		{"not reported, and its check fails", boot(cluster.NotReported, down), "remove from balancers boot"},
		{"complete, and it serves", boot(cluster.Complete, nil), "remove from balancers boot"},
		{"not complete, and its check fails", boot(cluster.Incomplete, down), ""},
		{"not complete, and it is off", boot(cluster.Incomplete, func(o *cluster.Observed) { o.Power = machine.PowerOff }), "remove from balancers boot"},
		{"complete, and no other machine serves", all(boot(cluster.Complete, nil)), ""},
		{"complete, and it is armed", boot(cluster.Complete, func(o *cluster.Observed) { o.Install = install.Status{State: install.Armed, Since: now} }), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if s := cluster.Assess(prod(), observe(up, tt.change), cluster.Record{}, now); actions(s) != tt.want {
				t.Errorf("actions %q, want %q; %s", actions(s), tt.want, stages(s))
			}
		})
	}
	// The error of asking is shown with what the machine waits for.
	s := cluster.Assess(prod(), observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { o.ReportError = "401 Unauthorized" }}), cluster.Record{}, now)
	if got := s.Machines[0].Waits; got != "the bootstrap to complete; its ConfigMap cannot be read: 401 Unauthorized" {
		t.Errorf("waits for %q", got)
	}
}

// TestPhases: what is not measured is unknown, and neither down nor ready; a cluster that served and does not is not serving; one that serves, and of which
// nobody brings machines up, is degraded by each machine that is not where it should be.
func TestPhases(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Boot: installedBoot}}
	serves, fails, pending := up, up, up
	pending.Check.Health = machine.CheckPending
	serves.Check = machine.Check{Health: machine.CheckPassing, Since: now}
	fails.Check = machine.Check{Health: machine.CheckFailing, Since: now, Reason: "refused"}
	unreachable := machine.Check{Health: machine.CheckFailing, Since: now, Reason: "i/o timeout", Unreachable: true}
	metal := func(h machine.Health, s install.State) cluster.Observed {
		return cluster.Observed{Observation: machine.Observation{Install: install.Status{State: s}, Check: machine.Check{Health: h}}}
	}
	for _, tt := range []struct {
		name      string
		cp, other cluster.Observed
		record    cluster.Record
		want      cluster.Phase
		waits     string
	}{
		{"just started, done before", pending, up, cluster.Record{Removed: now}, cluster.PhaseUnknown, "check"},
		{"just started, hypervisor not asked", cluster.Observed{Observation: machine.Observation{Power: machine.PowerUnasked, Install: up.Install}}, up, cluster.Record{Removed: now}, cluster.PhaseUnknown, "hypervisor"},
		{"hypervisor frozen", cluster.Observed{Observation: machine.Observation{Power: machine.PowerSilent, Install: up.Install, Check: machine.Check{Health: machine.CheckFailing}}}, up, cluster.Record{Removed: now}, cluster.PhaseUnknown, "hypervisor"},
		{"bare metal, never seen, not checked yet", metal(machine.CheckPending, install.Armed), metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseUnknown, "bootlab up prod"},
		{"bare metal, never seen, check fails", metal(machine.CheckFailing, install.Armed), metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseDown, "bootlab up prod"},
		{"bare metal, never seen, another machine uses its address", cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed}, Conflict: "02:00:00:00:00:09"}}, metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseUnknown, "cp0: its address, which 02:00:00:00:00:09 uses"},
		{"bare metal, never seen, its check fails, another machine uses its address", cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed}, Conflict: "02:00:00:00:00:09", Check: machine.Check{Health: machine.CheckFailing}}}, metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseDown, "cp0: its address"},
		{"held by a restore, not checked", cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed, Held: true, Why: "x"}}}, metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseUnknown, "a restore holds it"},
		{"held by a restore", cluster.Observed{Observation: machine.Observation{Install: install.Status{State: install.Armed, Held: true, Why: "x"}, Check: machine.Check{Health: machine.CheckFailing}}}, metal(machine.NotChecked, install.Armed), cluster.Record{}, cluster.PhaseDown, "a restore holds it"},
		{"it serves", serves, up, cluster.Record{Removed: now}, cluster.PhaseReady, ""},
		{"served", fails, up, cluster.Record{Removed: now}, cluster.PhaseNotServing, "0 of 3"},
		{"fails without a bootstrap that was removed", fails, up, cluster.Record{}, cluster.PhaseNotServing, "0 of 3"},
		{"a worker is off", serves, cluster.Observed{Observation: machine.Observation{Power: machine.PowerOff, Install: up.Install}}, cluster.Record{Removed: now}, cluster.PhaseDegraded, "bootlab up prod"},
		{"a worker is off, it comes up", serves, cluster.Observed{Observation: machine.Observation{Power: machine.PowerOff, Install: up.Install}, Control: true}, cluster.Record{Up: asked.Up, Removed: now}, cluster.PhaseWorkers, "switched on"},
		{"another machine uses a worker's address", serves, cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: up.Install, Boot: installedBoot, Conflict: "02:00:00:00:00:09"}}, cluster.Record{Removed: now}, cluster.PhaseDegraded, "02:00:00:00:00:09"},
		{"another machine uses the control plane's addresses", cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: up.Install, Boot: installedBoot, Conflict: "02:00:00:00:00:09", Check: serves.Check}}, up, cluster.Record{Removed: now}, cluster.PhaseNotServing, "0 of 3"},
		{"no router", serves, cluster.Observed{Observation: up.Observation, Ingress: machine.Check{Health: machine.CheckFailing}}, cluster.Record{Removed: now}, cluster.PhaseDegraded, "a router"},
		{"a worker is dead", serves, cluster.Observed{Observation: up.Observation, Ingress: unreachable}, cluster.Record{Removed: now}, cluster.PhaseDegraded, "w0: its check: i/o timeout"},
	} {
		all := observe(tt.other, nil)
		for _, cp := range []string{"cp0", "cp1", "cp2"} {
			all[cp] = tt.cp
		}
		s := cluster.Assess(prod(), all, tt.record, now)
		if s.Phase != tt.want || !strings.Contains(s.Waits, tt.waits) || (s.Waits == "") != (tt.want == cluster.PhaseReady) || s.NeedsUp != (tt.waits == "bootlab up prod") {
			t.Errorf("%s: %s (waits for %q), want %s; %s", tt.name, s.Phase, s.Waits, tt.want, stages(s))
		}
	}
}

// TestBootstrapStaysOn: a bootstrap machine that cannot be switched off says why, instead of being switched off for ever.
func TestBootstrapStaysOn(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Boot: installedBoot, Check: machine.Check{Health: machine.CheckPassing, Since: now}}}
	s := cluster.Assess(prod(), observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { o.Failed = "the hypervisor refused" }}), cluster.Record{Up: asked.Up, Removed: now}, now)
	if m := s.Machines[0]; m.Stage != machine.Gone || !m.Stuck || m.Waits != "the hypervisor refused" || actions(s) != "switch off boot" || !strings.Contains(s.Waits, "refused") {
		t.Errorf("%+v; %s; waits for %q", m, actions(s), s.Waits)
	}
}

// TestInstalledMetal: a bare-metal machine that is installed is not reset to bring its cluster up: its controller is asked whether it is on, and
// one that is on waits for its check. One that is armed is booted from the network.
func TestInstalledMetal(t *testing.T) {
	t.Parallel()
	metal := func(i install.State, p machine.Power) map[string]cluster.Observed {
		return observe(cluster.Observed{Control: true, Observation: machine.Observation{
			Power: p, Install: install.Status{State: i, Since: now.Add(-2 * time.Hour)},
			Check: machine.Check{Health: machine.CheckFailing, Since: now.Add(-time.Hour), Reason: "connection refused"},
		}}, nil)
	}
	for _, tt := range []struct {
		observed map[string]cluster.Observed
		want     string
	}{
		{metal(install.Installed, ""), "switch on if it is off boot, switch on if it is off cp0, switch on if it is off cp1, switch on if it is off cp2"},
		{metal(install.Installed, machine.PowerOn), ""},
		{metal(install.Armed, ""), "switch on boot, switch on cp0, switch on cp1, switch on cp2"},
	} {
		s := cluster.Assess(prod(), tt.observed, asked, now)
		if got := actions(s); got != tt.want {
			t.Errorf("%s: actions %q, want %q", stages(s), got, tt.want)
		}
	}
}

// TestBootstrapUnchecked: where nothing checks the API, an admin switches the bootstrap off, and it is said so.
func TestBootstrapUnchecked(t *testing.T) {
	t.Parallel()
	runs := cluster.Observed{Observation: machine.Observation{Power: machine.PowerOn, Install: install.Status{State: install.Installed}, Boot: installedBoot}, Control: true}
	s := cluster.Assess(prod(), observe(runs, nil), asked, now)
	if s.Phase != cluster.PhaseWorkers || !strings.Contains(s.Waits, "boot: to be switched off by an admin") {
		t.Errorf("%s, waits for %q", s.Phase, s.Waits)
	}
	s = cluster.Assess(prod(), observe(runs, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { o.Power = machine.PowerOff }}), asked, now)
	if s.Phase != cluster.PhaseReady {
		t.Errorf("the bootstrap is off: %s, waits for %q; actions %s", s.Phase, s.Waits, actions(s))
	}
}
