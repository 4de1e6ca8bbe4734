package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Level says how bad a finding is.
type Level string

// The levels, from good to bad. Fail: machines do not boot, or names do not resolve. Warn: they may, or not all of them.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// A Finding is what a check found about one thing.
type Finding struct {
	Check   string `json:"check"`
	Subject string `json:"subject"` // what was looked at: an interface, a port, a file
	Level   Level  `json:"level"`
	Text    string `json:"text"`          // what was found
	Fix     string `json:"fix,omitempty"` // what to do; empty: nothing
}

// An Endpoint is where a server of the appliance listens.
type Endpoint struct {
	Server  string // that listens there
	Socket  string // as status names it among those of the server
	Key     string // of the lab file
	Network string // tcp or udp
	Addr    netip.AddrPort
	Last    uint16                                                   // port of a range that begins with that of Addr; 0: it has one port
	Here    bool                                                     // this machine has the address, or it is one of Addresses
	Open    func(context.Context, netip.AddrPort) (io.Closer, error) // one of its ports, as the server does
}

// A Machine is the lab and the machine that the checks look at.
type Machine struct {
	Lab       *lab.Lab
	Endpoints []Endpoint
	DHCP      []string // the interfaces on which DHCP listens; "" is any
	// Addresses are those of clusters and balancers.
	Addresses []vip.Wanted
	// Serving says that the daemon runs here: it has the ports of the lab that it serves, and reports itself what it measures of interfaces,
	// hypervisors and other DHCP servers.
	Serving bool
	// Status is that of the daemon if it is Serving.
	Status api.Status
	// Unseen is why it is not known whether the daemon runs; nil: it is.
	Unseen error
	// Start is what the steps of a start find that need no port, and Unread which files of profiles the daemon's user may not read.
	Start, Unread []Finding
	// Loss returns what a start would lose of the state, or refuse of its file; nil: nothing. A daemon that serves reports that itself, and has
	// the file locked: it is not called then.
	Loss func() []Finding
	// Warnings are what the loader says of the lab.
	Warnings lab.Problems
	// Elsewhere says that the daemon runs in another network namespace: interfaces and ports here are not those that it serves.
	Elsewhere bool
	// OffersWithin is how long other DHCP servers may take to answer. 0: 5s.
	OffersWithin time.Duration
}

// A check looks at one kind of thing.
type check struct {
	name string
	run  func(context.Context, *Machine) []Finding
	net  bool // it looks at this network namespace
}

// checks are in the order in which they are shown.
var checks = []check{
	{"start", start, false}, {"files", files, false}, {"ports", ports, true}, {"interfaces", served, true}, {"addresses", addresses, true}, {"mtu", mtu, true}, {"dhcp", otherServers, true},
	{"reverse path", reversePath, true}, {"firewall", firewall, true}, {"state", state, false}, {"clock", clock, false},
	{"dns", upstreams, true}, {"hypervisors", hypervisors, true},
}

// Run runs all checks at once and returns their findings in the order of the checks. A check has 10s. Beside a daemon in another network
// namespace, what is true of this one says nothing.
func Run(ctx context.Context, m *Machine) (all []Finding) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found := make([][]Finding, len(checks))
	var wg sync.WaitGroup
	if m.Unseen != nil {
		text, fix := split(m.Unseen)
		f := warn("daemon", "cannot be asked: "+text, fix)
		f.Check = "daemon"
		all = append(all, f)
	}
	if m.Elsewhere {
		f := warn("network namespace", "was not looked at: the daemon runs in another one", elsewhereFix)
		f.Check = "network"
		all = append(all, f)
	}
	for i, c := range checks {
		if m.Elsewhere && c.net {
			continue
		}
		wg.Go(func() { found[i] = c.run(ctx, m) })
	}
	wg.Wait()
	for i, fs := range found {
		for _, f := range fs {
			f.Check = checks[i].name
			all = append(all, f)
		}
	}
	return all
}

const needsRoot = "run bootlab doctor as root"

const elsewhereFix = "run it there: ip netns exec NAME bootlab doctor, or nsenter --net=/proc/PID/ns/net bootlab doctor"

// Worst returns the worst level of findings.
func Worst(fs []Finding) Level {
	worst := OK
	for _, f := range fs {
		if f.Level == Fail || f.Level == Warn && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

// Advised is an error that says what to do, apart from the error that it wraps.
type Advised interface {
	error
	Unwrap() error
	Fix() string
}

// Failed returns an error as a finding: that it was not tried, where only root may.
func Failed(subject string, err error) Finding {
	if errors.Is(err, regular.ErrNoAnswer) {
		return fail(subject, fmt.Sprintf("its file system does not answer: an operation did not end within %v", regular.Wait),
			"look at its disk or server, and whether it is frozen: fsfreeze --unfreeze")
	}
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return warn(subject, "was not tried: "+err.Error(), needsRoot)
	}
	text, fix := split(err)
	return fail(subject, text, fix)
}

// split returns what is wrong and, if the error says it apart, what to do.
func split(err error) (text, fix string) {
	if a := Advised(nil); errors.As(err, &a) {
		return a.Unwrap().Error(), a.Fix()
	}
	return err.Error(), ""
}

func ok(subject, text string) Finding { return Finding{Subject: subject, Level: OK, Text: text} }

func warn(subject, text, fix string) Finding {
	return Finding{Subject: subject, Level: Warn, Text: text, Fix: fix}
}

func fail(subject, text, fix string) Finding {
	return Finding{Subject: subject, Level: Fail, Text: text, Fix: fix}
}
