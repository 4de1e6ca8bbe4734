package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/internal/lab/load"
)

func importLabCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Print a lab file made from the configuration of other servers",
		Long: `Print a lab file made from the configuration of other servers. It is printed to stdout and loads as it is; what could not
be carried is listed on stderr, with file and line. What the other server enforces and bootlab cannot (access rules, rate limits,
ignored clients) is a comment of the lab file too, NOT ENFORCED, and the exit status is 1 unless --accept-weaker-access is given.`,
		Args: subcommand,
		RunE: help,
	}
	cmd.PersistentFlags().Bool(acceptWeaker, false, "exit with 0 although the lab file restricts access less than the other server")
	for _, f := range importer.Formats() {
		cmd.AddCommand(importFormat(o, importer.Format(f[0]), f[1]))
	}
	cmd.AddCommand(importMachines(o))
	return cmd
}

func importFormat(o *options, format importer.Format, about string) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   string(format) + " FILE...",
		Short: "Read " + about,
		Long:  "Read " + about + ". - is standard input.",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			r, err := untilInterrupted(cmd.Context(), func() (*importer.Result, error) {
				return importer.Import(format, files, importer.Options{Root: root, Stdin: cmd.InOrStdin(), Interface: interfaceWith, Lookup: lookup(cmd.Context()), Check: importProblems})
			})
			if err != nil {
				return err
			}
			return o.printImport(cmd, r)
		},
	}
	cmd.Flags().StringVar(&root, "root", "", "`folder` below which absolute paths in the files are read, for files of another machine")
	return cmd
}

func importMachines(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   string(importer.Libvirt) + " URI",
		Short: "Read the virtual machines of a hypervisor, such as qemu:///system",
		Long: `Print a lab file with a host and a virtual machine for each domain of a hypervisor. It only reads, and needs no daemon. What could
not be carried is listed on stderr, with the domain and the line of its definition (virsh dumpxml --inactive).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := daemon.ReadMachines(cmd.Context(), "/proc/self/exe", args[0])
			if err != nil {
				return err
			}
			r, err := untilInterrupted(cmd.Context(), func() (*importer.Result, error) {
				return importer.ImportMachines(m, importer.Options{Interface: interfaceWith, Subnet: subnetOn, Check: importProblems})
			})
			if err != nil {
				return err
			}
			return o.printImport(cmd, r)
		},
	}
}

// untilInterrupted returns the result of work that takes no context, or an error as soon as ctx ends: the process ends then.
func untilInterrupted[T any](ctx context.Context, work func() (T, error)) (result T, err error) {
	done := make(chan func(), 1)
	go func() {
		r, e := work()
		done <- func() { result, err = r, e }
	}()
	select {
	case set := <-done:
		set()
	case <-ctx.Done():
		err = api.ErrInterrupted
	}
	return result, err
}

// An importResult is the result of import as JSON.
type importResult struct {
	Lab           string          `json:"lab"`            // the lab file
	Notes         []importer.Note `json:"notes"`          // what could not be carried as it is
	WeakensAccess []importer.Note `json:"weakens_access"` // those of notes that keep somebody out in the other server
}

const acceptWeaker = "accept-weaker-access"

// printImport prints what was imported. It returns an error if access is weaker than before, unless that is accepted.
func (o *options) printImport(cmd *cobra.Command, r *importer.Result) error {
	weaker := r.WeakensAccess()
	err := o.print(cmd, importResult{string(r.Lab), append([]importer.Note{}, r.Notes...), append([]importer.Note{}, weaker...)}, func() error {
		for _, n := range r.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), n)
		}
		_, err := cmd.OutOrStdout().Write(r.Lab)
		return err
	})
	if accepted, _ := cmd.Flags().GetBool(acceptWeaker); err != nil || accepted || len(weaker) == 0 {
		return err
	}
	return fmt.Errorf("the lab file restricts access less than the other server: %s not enforced; check what follows from it, then add --%s",
		lab.Plural(len(weaker), "statement"), acceptWeaker)
}

// importProblems returns what keeps a lab from being served: errors of the loader, and of the servers' tables.
func importProblems(name string, text []byte) lab.Problems {
	whole, _ := refusals(load.Parse(name, text, load.Options{InterfaceAddr: interfaces.AddrIn}))
	return whole
}

// lookup returns a function that looks names up as this machine does.
func lookup(ctx context.Context) func(string) netip.Addr {
	return func(name string) netip.Addr {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
		if err != nil || len(addrs) == 0 {
			return netip.Addr{}
		}
		return addrs[0]
	}
}

// interfaceWith returns the interface of this machine whose network contains an address.
func interfaceWith(a netip.Addr) (string, netip.Prefix) {
	return links.Find(func(p netip.Prefix) bool { return p.Contains(a) })
}

// subnetOn returns the IPv4 network of an interface of this machine, as the address of the machine in it.
func subnetOn(name string) netip.Prefix {
	prefixes, _ := links.Prefixes(name)
	for _, p := range prefixes {
		if p.Addr().Is4() {
			return p
		}
	}
	return netip.Prefix{}
}
