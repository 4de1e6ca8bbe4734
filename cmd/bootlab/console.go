package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
)

// escapeKey ends an interactive console: Ctrl-], as in virsh and telnet.
const escapeKey = 0x1d

func vmConsole(o *options) *cobra.Command {
	var take, raw bool
	cmd := &cobra.Command{
		Use:   "console HOST",
		Short: "Connect to the serial console of a virtual machine; Ctrl-] leaves it",
		Long: "Connect to the serial console of a virtual machine; Ctrl-] leaves it. Several may be connected at the same time. The machine may\n" +
			"be off: its console is there when it starts. Without a terminal, the input is typed, and the command goes on until it is interrupted,\n" +
			"or fails at the end of the input if the console is not open.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			if take {
				if err := c.TakeConsole(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			con := &console{client: c, host: args[0], out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
			if f, ok := con.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !raw {
				con.filter = &consolelog.Filter{}
			}
			return con.run(cmd.Context(), cmd.InOrStdin())
		},
	}
	cmd.Flags().BoolVar(&take, "force", false, "take the console from another program that has it, such as virsh console")
	cmd.Flags().BoolVar(&raw, "raw", false, "let the machine send any control sequence to the terminal: clipboard, titles, and what makes it answer")
	return cmd
}

// A console connects a terminal with a machine.
type console struct {
	client     *api.Client
	host       string
	out, notes io.Writer
	filter     *consolelog.Filter // nil: out is no terminal, or may get anything

	mu     sync.Mutex // of what follows
	opened bool       // the console was open once: what it writes is wanted, also after a restart of the machine
	ended  bool       // the input, which is no terminal
	state  string     // why the console is not open
}

// hopeless returns an error if the console is not open, and nobody is there to type.
func (c *console) hopeless() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended || c.opened || c.state == "" {
		return nil
	}
	return fmt.Errorf("the console of %s is not open: %s", c.host, c.state)
}

// run connects until the escape key, the end of ctx or of the daemon.
func (c *console) run(ctx context.Context, in io.Reader) error {
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(c.notes, "console of %s; Ctrl-] leaves it\r\n", c.host)
		state, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		defer func() {
			_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what the terminal answered to the machine is not for the shell
			_ = term.Restore(int(f.Fd()), state)
			fmt.Fprintln(c.notes)
		}()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.send(ctx, in, cancel) // a Read in progress ends with the process
	err := c.client.Console(ctx, c.host, c.show)
	if c.filter != nil {
		_, _ = c.out.Write(c.filter.Reset())
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if errors.Is(err, errLeft) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// show prints what happens on the console.
func (c *console) show(o api.ConsoleOutput) error {
	if o.State != "" {
		c.mu.Lock()
		c.opened = c.opened || o.State == api.ConsoleConnected
		c.state = o.State
		if c.state == api.ConsoleConnecting {
			c.state = ""
		}
		c.mu.Unlock()
		if err := c.hopeless(); err != nil {
			return err
		}
		fmt.Fprintf(c.notes, "[%s: %s]\r\n", c.host, o.State)
	}
	if c.filter != nil {
		o.Output = c.filter.Filter(o.Output)
	}
	_, err := c.out.Write(o.Output)
	return err
}

// errLeft ends a console by the escape key.
var errLeft = errors.New("left by the escape key")

// send sends what is typed. What cannot be sent is reported, and the console goes on.
func (c *console) send(ctx context.Context, in io.Reader, leave context.CancelCauseFunc) {
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		typed := buf[:n]
		i := slices.Index(typed, escapeKey)
		if i >= 0 {
			typed = typed[:i]
		}
		if len(typed) > 0 {
			if err := c.client.TypeConsole(ctx, c.host, typed); err != nil && ctx.Err() == nil {
				fmt.Fprintf(c.notes, "[%s: not typed: %v]\r\n", c.host, err)
			}
		}
		if i >= 0 {
			leave(errLeft)
			return
		}
		if err != nil { // the end of a file leaves the output
			c.mu.Lock()
			c.ended = true
			c.mu.Unlock()
			if err := c.hopeless(); err != nil {
				leave(err)
			}
			return
		}
	}
}

func vmLog(o *options) *cobra.Command {
	var list, raw bool
	var back int
	cmd := &cobra.Command{
		Use:   "log HOST",
		Short: "Print what a virtual machine wrote to its serial console in its last boot",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			boots, err := c.ConsoleBoots(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(boots) == 0 {
				if _, err := c.VMPlan(cmd.Context(), args[0]); err != nil { // no such host
					return err
				}
			}
			if list {
				return o.print(cmd, boots, func() error { return consoleBootsText(cmd, boots) })
			}
			if len(boots) == 0 {
				vms, err := c.VMs(cmd.Context())
				if err != nil {
					return err
				}
				return noOutput(args[0], vms)
			}
			if back < 0 || back >= len(boots) {
				return fmt.Errorf("%d boots of %s have console output: bootlab vm log %[2]s --list lists them", len(boots), args[0])
			}
			text, err := c.ConsoleLog(cmd.Context(), args[0], boots[len(boots)-1-back].Started)
			if err != nil {
				return err
			}
			if !raw {
				text = consolelog.Plain(text)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the boots whose output is kept")
	cmd.Flags().BoolVar(&raw, "raw", false, "print control sequences too, which may do anything to the terminal")
	cmd.Flags().IntVar(&back, "back", 0, "print an earlier boot: 1 is the one before the last")
	return cmd
}

// noOutput says why no console output of a host is kept.
func noOutput(host string, vms []api.VM) error {
	for _, vm := range vms {
		switch {
		case vm.Host != host:
		case vm.State == "absent":
			return fmt.Errorf("%s has no console output: create it first (bootlab vm create)", host)
		default:
			return fmt.Errorf("%s has written nothing to its serial console yet; it is %s", host, vm.State)
		}
	}
	return fmt.Errorf("%s has no console output: only virtual machines of bootlab have some", host)
}

func consoleBootsText(cmd *cobra.Command, boots []api.ConsoleBoot) error {
	var rows [][]string
	for i, b := range boots {
		rows = append(rows, []string{fmt.Sprint(len(boots) - 1 - i), localTime(b.Started), localTime(b.Last), fmt.Sprint(b.Bytes), fmt.Sprint(b.Dropped)})
	}
	return list(cmd, "no boots recorded", "BACK STARTED LAST BYTES DROPPED", rows)
}
