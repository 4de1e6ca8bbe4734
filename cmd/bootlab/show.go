package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// table writes aligned columns under a header whose words are the columns' names.
func table(cmd *cobra.Command, header string, rows [][]string) error {
	return writeTable(cmd.OutOrStdout(), strings.Fields(header), rows)
}

// list writes a table of what there is. Where there is nothing a person at a terminal reads none; a program gets the header alone.
func list(cmd *cobra.Command, none, header string, rows [][]string) error {
	if f, ok := cmd.OutOrStdout().(*os.File); ok && len(rows) == 0 && term.IsTerminal(int(f.Fd())) {
		_, err := fmt.Fprintln(f, none)
		return err
	}
	return table(cmd, header, rows)
}

// notes are texts about rows of a table, each of which is written once below it, with the rows that it is about: they may be longer than a
// terminal is wide, and the error of a hypervisor is that of all its machines.
type notes struct {
	texts []string
	about map[string][]string // rows, by text
}

// add adds a text about a row; an empty one is none.
func (n *notes) add(row, text string) {
	if text == "" {
		return
	}
	if n.about == nil {
		n.about = map[string][]string{}
	}
	if n.about[text] == nil {
		n.texts = append(n.texts, text)
	}
	n.about[text] = append(n.about[text], row)
}

// mostNamed is how many of many rows a text below a table names.
const mostNamed = 5

// write writes the texts below a table, if there are any.
func (n *notes) write(w io.Writer) {
	if len(n.texts) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range n.texts {
		rows := lab.Named(n.about[text], mostNamed)
		if !strings.HasPrefix(text, "hypervisor "+rows+" ") { // it says so itself
			text = rows + ": " + text
		}
		fmt.Fprintln(w, lab.Printable(text))
	}
}

// ask runs a question to the daemon and prints its answer.
func ask[T any](o *options, question func(*cobra.Command, *api.Client, []string) (T, error), text func(*cobra.Command, T) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := o.client()
		if err != nil {
			return err
		}
		answer, err := question(cmd, c, args)
		if err != nil {
			return err
		}
		return o.print(cmd, answer, func() error { return text(cmd, answer) })
	}
}

// oneByOne does something for one after the other; one that fails keeps none of the others from its turn, unless the daemon is
// gone. It prints what was done before it returns every error: each once, in that order.
func oneByOne[T, D any](cmd *cobra.Command, o *options, all []T, do func(T) (D, error), text func(*cobra.Command, []D) error) error {
	var done []D
	var failed []hostError
	for _, one := range all {
		d, err := do(one)
		if err != nil {
			failed = append(failed, hostError{fmt.Sprint(one), err})
			if errors.Is(err, api.ErrNoDaemon) || cmd.Context().Err() != nil {
				break
			}
			continue
		}
		done = append(done, d)
	}
	if len(done) == 0 {
		return joinErrors(failed)
	}
	return errors.Join(o.print(cmd, done, func() error { return text(cmd, done) }), joinErrors(failed))
}

func hostsCommand(o *options) *cobra.Command {
	var unknown bool
	known := ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Host, error) {
		hosts, err := c.Hosts(cmd.Context())
		if err != nil || len(args) == 0 {
			return hosts, err
		}
		return hostsNamed(hosts, args)
	}, hostsText)
	listUnknown := ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.UnknownMachine, error) {
		return c.Unknown(cmd.Context())
	}, unknownText)
	cmd := &cobra.Command{
		Use:   "hosts [HOST|CLUSTER...]",
		Short: "Show the boot and install state of hosts, or unknown machines",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if unknown && len(args) > 0 {
				return errors.New("--unknown takes no host: bootlab timeline MAC shows one unknown machine")
			}
			if unknown {
				return listUnknown(cmd, args)
			}
			return known(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&unknown, "unknown", false, "show machines that are not in the lab file; bootlab adopt prints lab-file lines for one")
	return cmd
}

// hostsNamed returns the hosts of these names (host, FQDN, MAC, address or cluster), each once, in the lab's order.
func hostsNamed(hosts []api.Host, names []string) ([]api.Host, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		found := false
		for _, h := range hosts {
			if isNamed(&h, name) {
				wanted[h.Name], found = true, true
			}
		}
		if found {
			continue
		}
		known := make([]string, len(hosts))
		for i, h := range hosts {
			known[i] = h.Name
		}
		return nil, fmt.Errorf("no host or cluster %q in the lab; %s", name, nearest(name, known, "bootlab hosts lists them"))
	}
	return slices.DeleteFunc(hosts, func(h api.Host) bool { return !wanted[h.Name] }), nil
}

// isNamed reports whether h, or its cluster, is what a command asks for, as lab.Find does.
func isNamed(h *api.Host, name string) bool {
	if mac, err := lab.ParseMAC(name); err == nil {
		return slices.Contains(h.MACs, mac) || slices.ContainsFunc(h.NICs, func(n api.NIC) bool { return n.MAC == mac })
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return h.IP == ip || h.IP6 == ip || slices.ContainsFunc(h.NICs, func(n api.NIC) bool { return n.IP == ip || n.IP6 == ip })
	}
	is := func(other string) bool { return other != "" && strings.EqualFold(strings.TrimSuffix(name, "."), other) }
	return is(h.Name) || is(h.FQDN) || is(h.Cluster) || slices.ContainsFunc(h.NICs, func(n api.NIC) bool { return is(n.FQDN) })
}

func unknownText(cmd *cobra.Command, ms []api.UnknownMachine) error {
	var rows [][]string
	for _, m := range ms {
		last := time.Since(m.Last).Round(time.Second).String() + " ago"
		if m.Event != "" {
			last = m.Event + " " + last
		}
		rows = append(rows, []string{m.MAC.String(), addr(m.IP), m.Network, m.Name, m.Serial, m.Model(), m.Platform, m.UUID, last, m.Reason})
	}
	return list(cmd, "no unknown machines", "MAC IP NETWORK NAME SERIAL MODEL FIRMWARE UUID LAST REASON", rows)
}

func hostsText(cmd *cobra.Command, hosts []api.Host) error {
	var rows [][]string
	var n notes
	for _, h := range hosts {
		if !h.Unknown.IsZero() {
			n.add(h.Name, "install state unknown since "+localTime(h.Unknown)+": bootlab why says what to do")
		}
		last := "no boot recorded"
		if h.Last != nil {
			last = fmt.Sprintf("%s %s ago", h.Last.Kind, time.Since(h.Last.At).Round(time.Second))
		}
		install := h.InstallText()
		if h.Assumed {
			install += " (assumed)"
		}
		rows = append(rows, []string{h.Name, hostAddrs(h), macs(h.MACs, len(h.NICs)), h.Profile, install, h.VM, h.StateText(), last})
	}
	if err := list(cmd, "no hosts in the lab", "HOST IP MAC PROFILE INSTALL VM STATE LAST", rows); err != nil {
		return err
	}
	n.write(cmd.OutOrStdout())
	return nil
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// hostAddrs lists the addresses of a host's NICs, that of the one that boots first.
func hostAddrs(h api.Host) string {
	all := addr(h.IP)
	for _, n := range h.NICs {
		if n.IP.IsValid() {
			all += "," + n.IP.String()
		}
	}
	return strings.TrimPrefix(all, ",")
}

// macs shows the first MAC of a host and the number of the others.
func macs(ms []lab.MAC, more int) string {
	if len(ms) == 0 {
		return ""
	}
	if more += len(ms) - 1; more > 0 {
		return fmt.Sprintf("%s +%d", ms[0], more)
	}
	return ms[0].String()
}
