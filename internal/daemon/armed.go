package daemon

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// What has armed machines that no admin has armed.
const (
	firstStart = "first start of this lab"
	byReload   = "armed by a reload"
)

// warnArmed logs which machines something has armed.
func (d *Daemon) warnArmed(by string, hosts, pools []string) {
	d.log.Warn(by+": machines install themselves at their next network boot", "hosts", hosts, "pools", pools, "advice", adviceFirst)
}

// armedText says which machines something has armed; empty: none.
func armedText(by string, hosts, pools []string) string {
	if len(hosts)+len(pools) == 0 {
		return ""
	}
	how := "these machines install themselves at their next network boot"
	if len(hosts) == 1 && len(pools) == 0 {
		how = "one machine installs itself at its next network boot"
	}
	return fmt.Sprintf("%s: %s: %s; %s", by, how, lab.Named(slices.Concat(hosts, inPools(pools)), fewNames), adviceFirst)
}

// noteArmed logs and keeps which hosts and pools a reload of lab before has armed, where hosts and pools are those that were armed until then.
// One that has another name is still armed by what armed it.
func (d *Daemon) noteArmed(before, l *lab.Lab, hosts, pools []string) {
	was := map[string]string{} // their names in before, by those in l
	for _, name := range hosts {
		if h := sameMachine(l, before.Host(name)); h != nil {
			was[h.Name] = name
		}
	}
	nowHosts, nowPools := d.mayInstall(l)
	nowHosts, nowPools = without(nowHosts, hosts), without(nowPools, pools)
	d.stateFolder.mu.Lock()
	defer d.stateFolder.mu.Unlock()
	if d.stateFolder.armed == nil {
		d.stateFolder.armed = map[string]time.Time{}
	}
	known := d.installs.All()
	nowHosts = slices.DeleteFunc(nowHosts, func(name string) bool {
		old, ok := was[name]
		if _, armed := d.stateFolder.armed[old]; ok && armed {
			d.stateFolder.armed[name] = known[name].Since
		}
		return ok
	})
	for _, name := range slices.Concat(nowHosts, nowPools) {
		d.stateFolder.armed[name] = known[name].Since
	}
	if len(nowHosts)+len(nowPools) > 0 {
		d.warnArmed(byReload, withMode(l, nowHosts), nowPools)
	}
}

// withMode adds to the names of hosts that are installed at every network boot why no mark ends that.
func withMode(l *lab.Lab, hosts []string) []string {
	out := slices.Clone(hosts)
	for i, name := range out {
		if h := l.Host(name); h != nil && h.Profile != nil && h.Profile.Install == lab.InstallAlways {
			out[i] += " (install: always)"
		}
	}
	return out
}

func without(names, others []string) []string {
	other := map[string]bool{}
	for _, name := range others {
		other[name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return other[name] })
}

// mayInstall is wouldInstall without the hosts whose state was lost: they boot their own disks.
func (d *Daemon) mayInstall(l *lab.Lab) (hosts, pools []string) {
	hosts, pools = d.wouldInstall(l)
	return without(hosts, d.unknownHosts(l)), pools
}

// armedByReload returns the hosts and pools that reloads have armed, without the hosts that an admin has said something about, or that have
// booted since.
func (d *Daemon) armedByReload(l *lab.Lab) (hosts, pools []string) {
	d.stateFolder.mu.Lock()
	armed := maps.Clone(d.stateFolder.armed)
	d.stateFolder.mu.Unlock()
	if len(armed) == 0 {
		return nil, nil
	}
	hosts, pools = d.mayInstall(l)
	known := d.installs.All()
	other := func(name string) bool { since, ok := armed[name]; return !ok || !known[name].Since.Equal(since) }
	return slices.DeleteFunc(hosts, other), slices.DeleteFunc(pools, other)
}

// wouldInstall returns the hosts that install themselves at their next network boot, once a loss is accepted, and the pools whose
// machines do, both sorted.
func (d *Daemon) wouldInstall(l *lab.Lab) (hosts, pools []string) {
	pools = []string{}
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil && p.Profile.Install != lab.InstallNever {
				pools = append(pools, n.Name+"/"+p.Name)
			}
		}
	}
	slices.Sort(pools)
	return d.hostsThat(l, d.installs.WouldInstall), pools
}

// unaccepted returns the hosts and pools that wouldInstall does at the first start of the lab, without the hosts that an admin has said
// something about, or that have booted since. There are none at a later start, and once an admin accepts them.
func (d *Daemon) unaccepted(l *lab.Lab) (hosts, pools []string) {
	if !d.stateFolder.first.Load() {
		return nil, nil
	}
	hosts, pools = d.wouldInstall(l)
	known := d.installs.All()
	return slices.DeleteFunc(hosts, func(name string) bool { _, ok := known[name]; return ok }), pools
}

func inPools(pools []string) (texts []string) {
	for _, p := range pools {
		texts = append(texts, "machines of pool "+p)
	}
	return texts
}
