package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
)

// A waiter waits until hosts have reached a step of their boot, as the daemon has observed it.
type waiter struct {
	step    string
	timeout time.Duration

	c     *api.Client
	since map[string]time.Time // the last event of each host before the command
}

// waitSteps are the steps that a boot can be waited for, in their order.
var waitSteps = []string{"lease", "kernel", "config", "installed", "ready"}

// waitEvery is the time between two looks at the daemon.
const waitEvery = time.Second

// flags adds --wait and --wait-timeout.
func (w *waiter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.step, "wait", "", "return when all boots have reached this step: "+strings.Join(waitSteps, ", ")+" (its own system runs)")
	cmd.Flags().DurationVar(&w.timeout, "wait-timeout", time.Hour, "how long --wait waits")
}

// start notes what each host did last, before the command causes its boot.
func (w *waiter) start(ctx context.Context, c *api.Client, hosts []string) error {
	if w.step == "" {
		return nil
	}
	if !slices.Contains(waitSteps, w.step) {
		return fmt.Errorf("--wait %s: want one of %s", w.step, strings.Join(waitSteps, ", "))
	}
	w.c, w.since = c, map[string]time.Time{}
	for _, host := range hosts {
		events, err := w.events(ctx, host)
		if err != nil {
			return err
		}
		for _, e := range events {
			w.since[host] = e.At
		}
	}
	return nil
}

// events returns what was recorded of a host since start, the oldest first.
func (w *waiter) events(ctx context.Context, host string) (events []event.Event, err error) {
	boots, err := w.c.Boots(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, b := range boots {
		for _, e := range b.Events {
			if e.At.After(w.since[host]) && !e.Claimed {
				events = append(events, e)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return a.At.Compare(b.At) })
	return events, nil
}

// wait returns when all hosts have reached the step, or cannot any more. The error says of each why not.
func (w *waiter) wait(ctx context.Context, hosts []string) error {
	if w.step == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for _, host := range hosts {
		all.Go(func() {
			if err := w.waitFor(ctx, host); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	all.Wait()
	return failed
}

// offLooks is how many looks in a row must find a virtual machine off: a restart is off for a moment.
const offLooks = 3

func (w *waiter) waitFor(ctx context.Context, name string) error {
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	last, off := "nothing was recorded of it", 0
	for {
		h, events, err := w.look(ctx, name)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s has not reached %s: %s (bootlab timeline %[1]s)", name, w.step, last)
		case errors.Is(err, api.ErrNoDaemon): // it may come back
		case err != nil:
			return err
		default:
			if machine.Power(h.VM).Off() {
				off++
			} else {
				off = 0
			}
			reached, why := progress(w.step, h, events)
			switch {
			case reached:
				return nil
			case why == "" && off >= offLooks:
				why = "its virtual machine is " + h.VM
			}
			if why != "" {
				return fmt.Errorf("%s will not reach %s: %s (bootlab timeline %[1]s)", name, w.step, why)
			}
			if n := len(events); n > 0 {
				last = "recorded last: " + eventText(events[n-1])
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look asks the daemon for a host and what was recorded of it.
func (w *waiter) look(ctx context.Context, name string) (api.Host, []event.Event, error) {
	hosts, err := w.c.Hosts(ctx)
	if err != nil {
		return api.Host{}, nil, err
	}
	i := slices.IndexFunc(hosts, func(h api.Host) bool { return h.Name == name })
	if i < 0 {
		return api.Host{}, nil, fmt.Errorf("host %s is no longer in the lab", name)
	}
	events, err := w.events(ctx, name)
	return hosts[i], events, err
}

// eventText is an event in a few words.
func eventText(e event.Event) string {
	text := e.Kind.String()
	for _, more := range []string{e.Text(), e.Err} {
		if more != "" {
			text += " " + more
		}
	}
	return text
}

// progress reports whether a host has reached a step, by what was recorded of it since the command, or why it will not. What the machine is
// the daemon decides; here is only whether its own system has sent something since the command.
func progress(step string, h api.Host, events []event.Event) (reached bool, why string) {
	var lease, script, kernel, config, system bool
	for _, e := range events {
		system = system || e.Shows() == event.StageSystem || e.Shows() == event.StageBalancer
		switch e.Kind {
		case event.DHCPAck:
			lease = true
		case event.ScriptServed:
			script, system = true, false
		case event.FileServed, event.TFTPServed:
			kernel = kernel || script
		case event.ConfigServed:
			config = true
			system = system || h.Install == "" // what is not installed is the system that asked for it
		case event.InstallDone:
			system = system && e.ByAdmin || e.Client == event.ClientOS // else its installer had the lease
		case event.InstallLoop, event.InstallTimeout, event.ScriptLoop:
			return false, eventText(e)
		}
	}
	installed := h.Install == "installed" && !h.Assumed
	switch step {
	case "lease":
		return lease, ""
	case "kernel":
		return kernel, ""
	case "config":
		return config, ""
	case "installed":
		if h.Install == "" {
			return false, "its profile installs nothing"
		}
		return installed, ""
	}
	return system && machine.Stage(h.MachineStage).Good() && (installed || h.Install == ""), ""
}
