package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

func main() {
	daemon.HypervisorProcess()
	command := root()
	running, _, _ := command.Find(os.Args[1:]) // nil or root if there is none
	if cmd, err := command.ExecuteContextC(interruptible(graceOf(running))); err != nil {
		if differ, ok := errors.AsType[differError](err); ok {
			fmt.Fprintln(os.Stderr, differ)
		} else {
			fmt.Fprintln(os.Stderr, "bootlab:", detailed(noLab(cmd, err)))
		}
		os.Exit(statusOf(cmd, err))
	}
}

// A differError says that plan --diff has found changes, which is no failure of the command.
type differError string

// Error implements error.
func (e differError) Error() string { return string(e) }

// statusOf returns the exit status for an error: 1, or 2 where 1 says that plans differ, as diff(1) does.
func statusOf(cmd *cobra.Command, err error) int {
	if _, differ := errors.AsType[differError](err); !differ && cmd.CommandPath() == "bootlab plan" && cmd.Flag("diff").Changed {
		return 2
	}
	return 1
}

// detailed returns the text of an error. Problems of a lab file come with their lines.
func detailed(err error) string {
	problems, ok := errors.AsType[lab.Problems](err)
	if !ok {
		return err.Error()
	}
	text, list := err.Error(), problems.Error()
	load.Quote(problems)
	lead := ""
	if text == list {
		lead = countErrors(len(problems)) + ":"
	}
	return lead + strings.TrimSuffix(strings.Replace(text, list, "\n"+firstOf(problems, "error"), 1), "\n")
}

// onInterrupt annotates a command with what becomes of it at an interrupt or SIGTERM. Without it, the command has interruptGrace to end by itself.
const (
	onInterrupt    = "interrupt"
	interruptEnds  = "ends"  // at once: it changes nothing
	interruptWaits = "waits" // it ends by itself, and must not be cut off
)

// interruptGrace is how long a command may take to restore a terminal or to close a file. One that takes longer hangs, as on a file that
// does not answer.
const interruptGrace = 3 * time.Second

// graceOf returns how long a command may go on after an interrupt; negative: as long as it wants.
func graceOf(cmd *cobra.Command) time.Duration {
	switch {
	case cmd == nil, cmd.Annotations[onInterrupt] == interruptEnds:
		return 0
	case cmd.Annotations[onInterrupt] == interruptWaits:
		return -1
	}
	return interruptGrace
}

// interruptible returns a context that the first interrupt or SIGTERM ends. The second, or the end of grace, ends the process as if it had
// never been caught; all state is on disk by then.
func interruptible(grace time.Duration) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2) // so that the second is not missed, however close it comes
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		last := <-signals
		cancel()
		var ended <-chan time.Time // never
		if grace >= 0 {
			ended = time.After(grace)
		}
		select {
		case last = <-signals:
		case <-ended:
		}
		signal.Reset(last)
		_ = syscall.Kill(os.Getpid(), last.(syscall.Signal))
	}()
	return ctx
}

// root is the table of contents.
func root() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "bootlab",
		Short:         "Network boot from one lab file: DHCP, TFTP, DNS, HTTP, load balancers and virtual machines",
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand,
		RunE:          help,
	}
	cmd.SetVersionTemplate("bootlab {{.Version}}\n")
	o.flags(cmd.PersistentFlags())
	cmd.AddCommand(
		// The lab file.
		checkCommand(o),
		doctorCommand(o),
		planCommand(o),
		schemaCommand(),
		importLabCommand(o),
		firmwareCommand(o),
		imagesCommand(o),
		openshiftCommand(o), talosCommand(o), kubernetesCommand(o),
		// The daemon.
		serveCommand(o),
		reloadCommand(o),
		tokenCommand(o),
		sessionsCommand(o),
		backupCommand(o),
		restoreCommand(o),
		// What it knows.
		statusCommand(o),
		hostsCommand(o),
		adoptCommand(o),
		leasesCommand(o),
		stateCommand(o),
		timelineCommand(o),
		whyCommand(o),
		resolveCommand(o),
		// What it does.
		installCommand(o),
		clustersCommand(o),
		upCommand(o),
		downCommand(o),
		vmCommand(o),
		powerCommand(o),
		backendCommand(o),
		dnsCommand(o),
	)
	sayUsage(cmd)
	completeArguments(cmd, o)
	_ = cmd.MarkPersistentFlagFilename("lab", "yaml", "yml") // it is there
	cmd.InitDefaultHelpCmd()
	helps, _, _ := cmd.Find([]string{"help"}) // it is there
	helps.RunE = helpOf
	return cmd
}

// sayUsage lets the errors of all commands' arguments and flags say what would be right.
func sayUsage(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(flagError)
	for _, c := range cmd.Commands() {
		sayUsage(c)
	}
	if cmd.HasSubCommands() {
		cmd.Flags().VarPF(&helpFlag{cmd: cmd}, "help", "h", "help for "+cmd.Name()).NoOptDefVal = "true"
	} else {
		args := cmd.Args
		cmd.Args = func(cmd *cobra.Command, a []string) error {
			if err := args(cmd, a); err != nil {
				if len(a) == 1 && (strings.HasSuffix(a[0], ".yaml") || strings.HasSuffix(a[0], ".yml")) {
					return fmt.Errorf("the lab file is set with a flag: %s --lab %s", cmd.CommandPath(), a[0])
				}
				return fmt.Errorf("%s; usage: %s", argumentCount(cmd, args, a), cmd.UseLine())
			}
			return exclusive(cmd)
		}
	}
}

// flagError says what is wrong with the flags of a command line. An unknown command is reported before its flags.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if given := cmd.Flags().Args(); ok && cmd.HasSubCommands() && len(given) > 0 {
		return subcommand(cmd, given)
	}
	if ok && strings.Trim(unknown.GetSpecifiedShortnames(), "0123456789") == "" && unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("-%s is parsed as a flag: no argument may be negative; usage: %s", unknown.GetSpecifiedShortnames(), cmd.UseLine())
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := invalid.GetFlag()
		err = fmt.Errorf("--%s %q %s", f.Name, invalid.GetValue(), invalidValue(f, invalid))
	}
	if ok {
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// nearestFlag returns the flag of a command that name probably means; empty: none.
func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return lab.Nearest(name, names)
}

// invalidValue says what is wrong with the value of a flag.
func invalidValue(f *pflag.Flag, err *pflag.InvalidValueError) string {
	value, kind := err.GetValue(), f.Value.Type()
	c, isChoice := f.Value.(*choice)
	switch {
	case isChoice:
		return "is not known: want " + either(c.of)
	case f.Name == "log-level":
		return "is not known: want debug, info, warn or error"
	case kind == "duration":
		if strings.Trim(value, "0123456789") == "" && value != "" {
			return fmt.Sprintf("has no unit: want %ss, %[1]sm or %[1]sh", value)
		}
		return "is not a time: want one such as 90s or 2h"
	case kind == "bool":
		return "is neither true nor false"
	}
	return "is not possible: " + err.Unwrap().Error()
}

// A choice is a flag with one of a few words.
type choice struct {
	word *string
	of   []string
}

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return errors.New("unknown word")
	}
	*c.word = s
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.word }

// Type implements pflag.Value.
func (*choice) Type() string { return "string" }

// either lists words: "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// exclusive returns an error if flags are given that exclude each other. cobra's own, which comes later, does not say it in our words.
func exclusive(cmd *cobra.Command) (err error) {
	if cmd.ValidateFlagGroups() == nil {
		return nil
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, group := range f.Annotations["cobra_annotation_mutually_exclusive"] {
			for _, other := range strings.Fields(group) {
				if err == nil && other != f.Name && cmd.Flags().Changed(other) {
					err = fmt.Errorf("--%s and --%s exclude each other; see %s --help", f.Name, other, cmd.CommandPath())
				}
			}
		}
	})
	return err
}

// A helpFlag is --help of a command with subcommands. Beside an argument it counts as not given, so that subcommand refuses what is no
// command: cobra prints the help before it looks at arguments.
type helpFlag struct {
	cmd   *cobra.Command
	given bool
}

// Set implements pflag.Value.
func (h *helpFlag) Set(s string) (err error) { h.given, err = strconv.ParseBool(s); return err }

// String implements pflag.Value.
func (h *helpFlag) String() string { return strconv.FormatBool(h.given && h.cmd.Flags().NArg() == 0) }

// Type implements pflag.Value.
func (*helpFlag) Type() string { return "bool" }

// argumentCount says whether the arguments given, which fits refuses, are too few or too many.
func argumentCount(cmd *cobra.Command, fits cobra.PositionalArgs, given []string) string {
	for more := 1; more <= 3; more++ {
		if fits(cmd, append(slices.Clone(given), make([]string, more)...)) == nil {
			return missingArgument(cmd, len(given)) + " is missing"
		}
	}
	if len(given) == 1 {
		return "1 argument is too many"
	}
	return fmt.Sprintf("%d arguments are too many", len(given))
}

// missingArgument returns the name of the argument behind n others in the usage of cmd.
func missingArgument(cmd *cobra.Command, n int) string {
	names := strings.Fields(cmd.Use)[1:]
	if len(names) == 0 {
		return "an argument"
	}
	return strings.ReplaceAll(strings.TrimSuffix(names[min(n, len(names)-1)], "..."), "|", " or ")
}

// subcommand refuses what is no command of cmd, where cobra would print the help and succeed.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q; %s", args[0], cmd.CommandPath(), hint)
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// helpOf prints the help of the command that the arguments name.
func helpOf(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err == nil && found.HasSubCommands() {
		err = subcommand(found, rest)
	}
	if err != nil {
		return err
	}
	return found.Help()
}
