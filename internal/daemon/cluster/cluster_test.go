package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/lab"
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
	absent := cluster.Observed{VM: "absent", Control: true, Install: install.Status{State: install.Armed}}
	failing := func(o *cluster.Observed) {
		o.API, o.Since, o.Check = cluster.Failing, now.Add(-time.Minute), "connection refused"
	}
	up := cluster.Observed{VM: "running", Control: true, Install: install.Status{State: install.Installed}, Boot: cluster.Boot{Started: now.Add(-time.Minute), Stage: "install"}}
	serves := func(o *cluster.Observed) { *o = up; o.API, o.Since = cluster.Passing, now }
	starts := func(o *cluster.Observed) { *o = up; failing(o) }
	boots := func(o *cluster.Observed) {
		o.VM, o.Install.State, o.Boot = "running", install.Booting, cluster.Boot{Started: now.Add(-time.Minute), Stage: "script"}
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
		{"the bootstrap fails a moment ago", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.Since = now }, "cp0": serves, "cp1": serves, "cp2": serves}), asked,
			cluster.PhaseWorkers, "boot starting, cp0 serving, cp1 serving, cp2 serving, w0 running", "", "15 seconds"},
		{"the bootstrap stops to serve", observe(up, map[string]func(*cluster.Observed){"boot": starts, "cp0": serves, "cp1": serves, "cp2": serves}), asked,
			cluster.PhaseWorkers, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "take out boot, switch off boot", "boot: its power: it is being switched off"},
		{"it is off", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.VM = "stopped" }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Left: now}, cluster.PhaseReady, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "", ""},
		{"a bootstrap of metal that was switched on", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.VM = "" }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Left: now, Switched: map[string]time.Time{"boot": asked.Up}}, cluster.PhaseWorkers, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "switch off boot", "boot: its power: it is being switched off"},
		{"a bootstrap of metal that is off, or that somebody else switched on", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.VM = "" }, "cp0": serves, "cp1": serves, "cp2": serves}),
			cluster.Record{Up: asked.Up, Left: now}, cluster.PhaseReady, "boot gone, cp0 serving, cp1 serving, cp2 serving, w0 running", "", ""},
		{"the control plane is lost later", observe(up, map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { starts(o); o.VM = "stopped" }, "cp0": starts, "cp1": starts, "cp2": serves}),
			cluster.Record{Left: now}, cluster.PhaseBootstrap, "boot gone, cp0 starting, cp1 starting, cp2 serving, w0 running", "", "1 of 3"},
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
	boot := cluster.Boot{Started: now.Add(-time.Minute), Stage: "script"}
	for name, tt := range map[string]struct {
		o            cluster.Observed
		record       cluster.Record
		machine, all string
	}{
		"down":                     {cluster.Observed{VM: "absent", Control: true, Install: install.Status{State: install.Armed}}, cluster.Record{}, "bootlab up edge", "bootlab up edge"},
		"booting":                  {cluster.Observed{VM: "running", Install: install.Status{State: install.Booting}, Boot: boot}, asked, "its boot, at stage script", "the control plane: 0 of 1 machine serves"},
		"installing":               {cluster.Observed{VM: "running", Install: install.Status{State: install.Installing}, Boot: boot}, asked, "its installer, at stage script", "the control plane: 0 of 1 machine serves"},
		"starting":                 {cluster.Observed{VM: "running", Install: install.Status{State: install.Installed}, Boot: boot, API: cluster.Failing, Check: "connection refused"}, asked, "its check: connection refused", "the control plane: 0 of 1 machine serves"},
		"serves, installer silent": {cluster.Observed{VM: "running", Install: install.Status{State: install.Installing}, Boot: boot, API: cluster.Passing}, asked, "its installer to report that it is done; if it is installed: bootlab install node --done", "the control plane: 0 of 1 machine serves"},
		"serves, armed":            {cluster.Observed{VM: "running", Install: install.Status{State: install.Armed, Since: now}, Boot: boot, API: cluster.Passing}, asked, "its network boot: it is armed, and its former system serves", "the control plane: 0 of 1 machine serves"},
		"by hand":                  {cluster.Observed{Install: install.Status{State: install.Armed}}, asked, "an admin has to switch it on: it has no bmc and is no virtual machine", "the control plane: 0 of 1 machine serves"},
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
	up := cluster.Observed{VM: "running", Install: install.Status{State: install.Installed}, API: cluster.Passing, Since: now.Add(-time.Hour)}
	blip := func(o *cluster.Observed) { o.API, o.Since = cluster.Failing, now.Add(-time.Second) }
	down := func(o *cluster.Observed) { o.API, o.Since = cluster.Failing, now.Add(-time.Hour) }
	armed := func(o *cluster.Observed) { o.Install = install.Status{State: install.Armed, Since: now} }
	for _, tt := range []struct {
		name   string
		change map[string]func(*cluster.Observed)
		record cluster.Record
		want   string
	}{
		{"a blip", map[string]func(*cluster.Observed){"boot": blip}, cluster.Record{}, ""},
		{"it is down", map[string]func(*cluster.Observed){"boot": down}, cluster.Record{}, "take out boot"},
		{"it was taken out", map[string]func(*cluster.Observed){"boot": down}, cluster.Record{Left: now}, ""},
		{"it is armed", map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { down(o); armed(o) }}, cluster.Record{}, ""},
		{"it was taken out, and is armed again", map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) { down(o); armed(o) }}, cluster.Record{Left: now.Add(-time.Minute)}, "put back boot"},
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
	boot := cluster.Boot{Started: now, Stage: "address"}
	for _, tt := range []struct {
		system, failed bool
		want           cluster.Stage
	}{{false, false, cluster.StageBooting}, {true, false, cluster.StageRunning}, {true, true, cluster.StageBooting}} {
		boot.System, boot.Failed = tt.system, tt.failed
		s := cluster.Assess(prod(), map[string]cluster.Observed{"w0": {VM: "running", Install: install.Status{State: install.Live}, Boot: boot}}, asked, now)
		if m := s.Machines[4]; m.Stage != tt.want {
			t.Errorf("%+v: %+v", tt, m)
		}
	}
}

// TestStuck: a machine that goes on only if somebody does something says what.
func TestStuck(t *testing.T) {
	t.Parallel()
	metal := cluster.Observed{Install: install.Status{State: install.Armed}}
	for name, tt := range map[string]struct {
		o    cluster.Observed
		want string
	}{
		"metal without a controller": {metal, "no bmc"},
		"held":                       {cluster.Observed{Install: install.Status{State: install.Booting, Held: true}}, "bootlab install cp0"},
		"held by a restore":          {cluster.Observed{Install: install.Status{State: install.Armed, Held: true, Why: "not in the backup"}}, "a restore holds it: bootlab install cp0, or --done if it is installed"},
		"lost":                       {cluster.Observed{Install: install.Status{State: install.Unknown}}, "--done"},
		"a failed boot":              {cluster.Observed{Install: install.Status{State: install.Booting}, Boot: cluster.Boot{Started: now, Failed: true, Reason: "no such file"}}, "no such file"},
		"a silent hypervisor":        {cluster.Observed{VM: "unknown", Control: true, Install: metal.Install}, "hypervisor"},
		"a failed action":            {cluster.Observed{VM: "absent", Control: true, Install: metal.Install, Failed: "no such bridge"}, "no such bridge"},
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

// TestDown: a cluster whose machines were shut down is down, though its bootstrap machine left long ago, and though the last checks passed.
func TestDown(t *testing.T) {
	t.Parallel()
	off := cluster.Observed{VM: "stopped", Control: true, Install: install.Status{State: install.Installed}, Boot: cluster.Boot{Started: now.Add(-time.Hour), Stage: "install"}}
	passed := off
	passed.API, passed.Ingress = cluster.Passing, cluster.Passing
	for name, o := range map[string]cluster.Observed{"checks have failed": off, "the last checks passed": passed} {
		s := cluster.Assess(prod(), observe(o, nil), cluster.Record{Left: now.Add(-time.Hour)}, now)
		if want := "boot gone, cp0 off, cp1 off, cp2 off, w0 off"; s.Phase != cluster.PhaseDown || stages(s) != want || s.Serving != 0 || len(s.Actions) > 0 {
			t.Errorf("%s: %s, %d serve: %s; %s", name, s.Phase, s.Serving, stages(s), actions(s))
		}
	}
}

// TestDeadController: a machine of metal whose controller did not switch it on is off, not booting, and is tried again; once it was seen to
// boot, or its controller did, it is not.
func TestDeadController(t *testing.T) {
	t.Parallel()
	at := now.Add(-time.Minute)
	record := cluster.Record{Up: asked.Up, Switched: map[string]time.Time{"cp0": at}}
	dead := cluster.Observed{Control: true, Install: install.Status{State: install.Armed}, Failed: "controller https://10.0.0.9: no route to host"}
	boots, switched := dead, dead
	boots.Boot = cluster.Boot{Started: now, Stage: "script"}
	switched.Failed = ""
	for _, tt := range []struct {
		name   string
		o      cluster.Observed
		stage  cluster.Stage
		stuck  bool
		action bool
	}{{"dead", dead, cluster.StageOff, true, true}, {"it boots all the same", boots, cluster.StageBooting, false, false}, {"switched on", switched, cluster.StageBooting, false, false}} {
		s := cluster.Assess(prod(), map[string]cluster.Observed{"cp0": tt.o}, record, now)
		m := s.Machines[1]
		if m.Stage != tt.stage || m.Stuck != tt.stuck || strings.Contains(actions(s), "switch on cp0") != tt.action || tt.stuck != strings.Contains(m.Waits, "no route") {
			t.Errorf("%s: %+v; %s", tt.name, m, actions(s))
		}
	}
}

// TestRouter: a cluster whose router serves on no machine is not ready; one machine is enough.
func TestRouter(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{Install: install.Status{State: install.Installed}, API: cluster.Passing, Since: now}
	c := prod()
	c.Hosts = c.Hosts[1:]
	for n, want := range []cluster.Phase{cluster.PhaseWorkers, cluster.PhaseReady} {
		all := map[string]cluster.Observed{}
		for _, h := range c.Hosts {
			all[h.Name] = up
		}
		worker := up
		worker.API, worker.Ingress = cluster.Unchecked, cluster.Failing
		if n > 0 {
			worker.Ingress = cluster.Passing
		}
		all["w0"] = worker
		if s := cluster.Assess(c, all, asked, now); s.Phase != want {
			t.Errorf("%d routers: %s (%s), want %s", n, s.Phase, s.Waits, want)
		}
	}
}

// TestBootstrapReports: where the API server is asked, its ConfigMap decides. A bootstrap whose own check fails stays until that says
// complete, and one whose check passes leaves then; a machine that was switched off leaves whatever it says.
func TestBootstrapReports(t *testing.T) {
	t.Parallel()
	up := cluster.Observed{VM: "running", Install: install.Status{State: install.Installed}, API: cluster.Passing, Since: now.Add(-time.Hour)}
	boot := func(reported cluster.Completion, change func(*cluster.Observed)) map[string]func(*cluster.Observed) {
		return map[string]func(*cluster.Observed){"boot": func(o *cluster.Observed) {
			o.Reported = reported
			if change != nil {
				change(o)
			}
		}}
	}
	down := func(o *cluster.Observed) { o.API = cluster.Failing }
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
		{"not reported, and its check fails", boot(cluster.NotReported, down), "take out boot"},
		{"complete, and it serves", boot(cluster.Complete, nil), "take out boot"},
		{"not complete, and its check fails", boot(cluster.Incomplete, down), ""},
		{"not complete, and it is off", boot(cluster.Incomplete, func(o *cluster.Observed) { o.VM = "stopped" }), "take out boot"},
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
