// Command bootlab is the lab's network-boot appliance: one lab file, from which DHCP, TFTP, DNS, HTTP, load balancers and
// virtual machines are derived, and one daemon that serves them all.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once: nothing learned is lost by that
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bootlab:", err)
		os.Exit(1)
	}
}

// root is the table of contents.
func root() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "bootlab",
		Short:         "One lab file, one daemon: DHCP, TFTP, DNS, HTTP, load balancers and virtual machines that boot",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	o.flags(cmd.PersistentFlags())
	cmd.AddCommand(
		// The lab file.
		checkCommand(o),
		planCommand(o),
		schemaCommand(),
		// The daemon.
		serveCommand(o),
		reloadCommand(o),
		tokenCommand(o),
		// What it knows.
		statusCommand(o),
		hostsCommand(o),
		leasesCommand(o),
		timelineCommand(o),
		// What it does.
		installCommand(o),
		vmCommand(o),
		backendCommand(o),
	)
	return cmd
}
