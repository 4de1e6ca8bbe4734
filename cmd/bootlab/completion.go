package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// completeArguments lets the shell complete the arguments of all commands by what their usage lines call them. Names come from the lab file,
// so that no daemon need run, and none is asked at each tab.
func completeArguments(cmd *cobra.Command, o *options) {
	for _, c := range cmd.Commands() {
		completeArguments(c, o)
	}
	if cmd.HasSubCommands() {
		return
	}
	words := strings.Fields(cmd.Use)[1:]
	cmd.ValidArgs = nil
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		word, ok := wordAt(words, len(args))
		switch {
		case !ok:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case slices.Contains(word, "FILE"):
			return nil, cobra.ShellCompDirectiveDefault
		case slices.Contains(word, "DIR"):
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		all := candidates(o, word, args)
		return slices.DeleteFunc(all, func(c string) bool {
			name, _, _ := strings.Cut(c, "\t")
			return slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// wordAt returns the alternatives of the n-th argument in a usage line, such as HOST and CLUSTER of [HOST|CLUSTER...]; false: there is none.
func wordAt(words []string, n int) (alternatives []string, ok bool) {
	if n >= len(words) {
		if n = len(words) - 1; n < 0 || !strings.Contains(words[n], "...") {
			return nil, false
		}
	}
	return strings.Split(strings.TrimSuffix(strings.Trim(words[n], "[]"), "..."), "|"), true
}

// candidates returns what an argument may be, with what it is after a tab. A word in lower case stands for itself.
func candidates(o *options, word, args []string) (all []cobra.Completion) {
	l, err := load.Lab(o.lab, load.Options{})
	if err != nil {
		l = &lab.Lab{} // nobody reads an error at a tab; bootlab check has it
	}
	for _, w := range word {
		switch w {
		case "HOST":
			for _, h := range l.Hosts {
				all = append(all, h.Name+"\t"+h.FQDN)
			}
		case "CLUSTER":
			for _, c := range l.Clusters {
				all = append(all, c.Name+"\tcluster")
			}
		case "ZONE":
			for _, z := range l.Zones {
				all = append(all, strings.TrimSuffix(z.Origin, ".")+"\tzone")
			}
		case "HYPERVISOR":
			for _, hv := range l.Hypervisors {
				all = append(all, hv.Name+"\t"+hv.URI)
			}
		case "BALANCER":
			for _, b := range l.Balancers {
				all = append(all, b.Name+"\tbalancer")
			}
		case "BACKEND":
			all = append(all, backendNames(l, args[0])...)
		default:
			if w == strings.ToLower(w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// backendNames returns the names of the backends of a balancer in the lab file.
func backendNames(l *lab.Lab, balancer string) (all []cobra.Completion) {
	for _, b := range l.Balancers {
		if b.Name != balancer {
			continue
		}
		for _, m := range b.Backends {
			if name := m.Name; !slices.Contains(all, name) {
				all = append(all, name)
			} else { // it names several
				all = append(all, m.AddrText())
			}
		}
	}
	return all
}
