package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/lab"
)

// FromStatus returns what the daemon has measured, in the words of bootlab status: a line for each of its conditions, and what else is not
// good. What a check looks at, too, has its name. What is among faults, which bootlab check finds, is left out.
func FromStatus(s api.Status, l *lab.Lab, faults lab.Problems) []Finding {
	return slices.Concat(statusServers(s), statusConditions(s, faults), statusFaults(s, faults), statusWarnings(s, l))
}

func reported(level Level, check, subject, text string) Finding {
	return Finding{Check: check, Subject: subject, Level: level, Text: text}
}

func failed(check, subject, text, fix string) Finding {
	return Finding{Check: check, Subject: subject, Level: Fail, Text: text, Fix: fix}
}

// serverFix says what to do about a server that does not serve, or not everywhere.
func serverFix(state api.ServerState) string {
	if state == api.StatePartly {
		return "set the interface or the address up: the server uses it as soon as it exists"
	}
	return "remove the cause; if the server has stopped, restart the daemon: systemctl restart bootlab"
}

// withoutInterfaces returns the problems of a server, without those of interfaces that have a finding of their own.
func withoutInterfaces(s api.Status, srv api.Server) []string {
	problems := s.Problems(srv)
	if !srv.Serving {
		return problems
	}
	return slices.DeleteFunc(problems, func(problem string) bool {
		return slices.ContainsFunc(s.Conditions, func(c api.Condition) bool {
			return c.Kind == api.ConditionInterface && !c.OK && strings.HasPrefix(problem, c.Name+": ")
		})
	})
}

func addressFix(a api.Address) string {
	switch {
	case a.Command != "":
		return a.Command
	case a.MAC.IsZero():
		return "add it to the interface of its network, or let bootlab do that: appliance.addresses: hold"
	}
	return "find the machine " + a.MAC.String() + ", and take the address from it or switch it off"
}

// conditionFix says what to do about a condition whose problem does not say so.
func conditionFix(c api.Condition) string {
	switch c.Kind {
	case api.ConditionPool:
		return "widen the range of the pool, or release leases: bootlab leases release ADDRESS"
	case api.ConditionMirror:
		return "check mirrors." + c.Name + ".url in the lab file, and the network to it"
	case api.ConditionHypervisor:
		return "start libvirt there, or check hypervisors." + c.Name + ".uri in the lab file"
	case api.ConditionDisk:
		return "free some space, or put the folder back: look at the disk and its mount"
	case api.ConditionCertificate:
		return "replace the file with a valid certificate: it is read again by itself"
	case api.ConditionMachine, api.ConditionZone:
		return "fix what the text names, then: bootlab check"
	case api.ConditionTFTP:
		return "look at that machine; this ends a minute after the last dropped request"
	}
	return "" // the problem says it
}

// statusServers are a refused reload, and the servers, addresses and store that are not good, and a loss of install states.
func statusServers(s api.Status) (all []Finding) {
	if refused := s.Reload.Refused(); refused != "" {
		f := fail("reload", refused+": "+strings.ReplaceAll(s.Reload.Err, "\n", "; "), "remove the cause, then: bootlab reload")
		f.Check = "daemon"
		all = append(all, f)
	}
	for _, srv := range s.Servers {
		problems := strings.Join(withoutInterfaces(s, srv), "; ")
		text := string(s.StateOf(srv)) + ": " + problems
		if notes := s.Notes(srv); srv.Serving && len(notes) > 0 {
			text += ": " + strings.Join(notes, "; ")
		}
		switch {
		case !srv.Serving:
			all = append(all, failed("daemon", srv.Name, text, serverFix(s.StateOf(srv))))
		case srv.Name == "virt" || problems == "": // hypervisors have lines of their own, and panics are among the warnings
		default:
			all = append(all, reported(Warn, "daemon", srv.Name, text))
		}
	}
	for _, a := range s.Unreached() {
		if a.State == api.AddressProbing {
			all = append(all, reported(Warn, "daemon", a.Addr.String(), "is being probed: "+a.Problem))
			continue
		}
		all = append(all, failed("daemon", a.Addr.String(), a.Problem, addressFix(a)))
	}
	if s.StateLost != "" { // no machine is installed
		all = append(all, reported(Fail, "state", s.Store.Folder, s.StateLost))
	}
	for _, problem := range s.Store.Problems {
		all = append(all, reported(Fail, "state", s.Store.Folder, problem))
	}
	return all
}

// statusConditions has a line for each condition, but for what something else says: a fault, another machine with the same error, the store.
func statusConditions(s api.Status, faults lab.Problems) (all []Finding) {
	checks := map[string]string{api.ConditionInterface: "interfaces", api.ConditionHypervisor: "hypervisors", api.ConditionDisk: "state",
		api.ConditionUpstream: "dns", api.ConditionDHCPServer: "dhcp", api.ConditionMarker: "state"}
	for i, c := range s.Conditions {
		if i > 0 && c.SameProblem(s.Conditions[i-1]) || slices.ContainsFunc(faults, c.Has) {
			continue
		}
		if c.Kind == api.ConditionDisk && c.Name == s.Store.Folder && len(s.Store.Problems) > 0 {
			continue // one of them says more
		}
		check, subject := checks[c.Kind], c.Name
		if check == "" {
			check, subject = "daemon", c.Kind+" "+c.Name
		}
		if c.Kind == api.ConditionDisk && c.Name != s.Store.Folder { // that of appliance.files
			check = "disk"
		}
		switch {
		case c.OK && c.Kind == api.ConditionHypervisor:
			all = append(all, reported(OK, check, subject, "the daemon is connected"))
		case c.OK:
			all = append(all, reported(OK, check, subject, c.Detail))
		case c.Kind == api.ConditionMarker: // the lab works
			all = append(all, reported(Warn, check, subject, c.Problem))
		default:
			all = append(all, failed(check, subject, c.Wrong(), cmp.Or(c.Fix, conditionFix(c))))
		}
	}
	return all
}

// statusFaults are the errors of the running lab that neither a condition nor bootlab check has.
func statusFaults(s api.Status, faults lab.Problems) (all []Finding) {
	for _, p := range s.Faults {
		if !faults.Has(p) && !slices.ContainsFunc(s.Conditions, func(c api.Condition) bool { return c.Has(p) }) {
			all = append(all, failed("lab", p.Key, p.Error(), "fix it in the lab file; it reloads by itself"))
		}
	}
	return all
}

// statusWarnings are the warnings of status that nothing else reports.
func statusWarnings(s api.Status, l *lab.Lab) (all []Finding) {
	addresses := interfaces.AddressWarnings(l) // which interfaces and Unreached report
	for _, w := range s.Warnings {
		switch {
		case w.Message == s.StateLost:
		case slices.ContainsFunc(s.Conditions, func(c api.Condition) bool { return c.Has(w) }):
		case slices.ContainsFunc(addresses, func(p *lab.Problem) bool { return p.Key == w.Key && p.Message == w.Message }):
		case w.Path != "":
			all = append(all, reported(Warn, "files", w.Path, w.Error()))
		default:
			all = append(all, reported(Warn, "daemon", "warning", w.Error()))
		}
	}
	return all
}

// Join returns what the daemon has measured and what the checks have found, each thing once. Of what is good, of interfaces, files and other DHCP
// servers the checks say more; of the rest, as of hypervisors, the daemon knows more.
func Join(reported, own []Finding) []Finding {
	good := func(f Finding) bool { return f.Level == OK }
	if slices.ContainsFunc(reported, func(d Finding) bool { return d.Check == "dns" && d.Subject == "dns.forward" && !good(d) }) { // none of its servers answers
		own = slices.DeleteFunc(own, func(f Finding) bool { return f.Check == "dns" && !good(f) })
	}
	same := func(d, f Finding) bool { return d.Check == f.Check && d.Subject == f.Subject }
	reported = slices.DeleteFunc(reported, func(d Finding) bool {
		return slices.ContainsFunc(own, func(f Finding) bool {
			switch d.Check {
			case "dhcp", "files":
				return same(d, f)
			case "interfaces":
				return same(d, f) && (!good(f) || good(d))
			}
			return same(d, f) && good(f) && good(d) && d.Check != "hypervisors"
		})
	})
	own = slices.DeleteFunc(own, func(f Finding) bool {
		return slices.ContainsFunc(reported, func(d Finding) bool {
			return same(d, f) && (good(d) == good(f) || good(d) && d.Check == "hypervisors")
		})
	})
	return slices.Concat(reported, own)
}
