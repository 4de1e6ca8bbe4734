package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

// backendsEvery is how often backends are shown, and the time that their rates are of.
const backendsEvery = time.Second

// A ratedBalancer is a balancer with the rates of its backends.
type ratedBalancer struct {
	api.Balancer
	Backends []ratedBackend `json:"backends"` // instead of api.Balancer's
}

// A ratedBackend is a backend with its rates, per second.
type ratedBackend struct {
	api.Backend
	Rate      float64 `json:"rate"`       // connections, in mode http requests
	ErrorRate float64 `json:"error_rate"` // of Errors
}

func liveCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Show rates, errors, latencies and states of backends",
		Long: "Show the rates, errors, latencies and states of all backends: on a terminal every second until an interrupt, else once.\n" +
			"CONN/S counts connections, in mode http requests; ERR/S failed connects, in mode http also responses that are 5xx, missing or cut.",
		Args: cobra.NoArgs,
	}
	watch := cmd.Flags().Bool("watch", false, "show every second, also without a terminal; with --json a line of JSON each time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return watchBackends(cmd, o, *watch) }
	return cmd
}

// watchBackends shows balancers and backends: with watch and on a terminal until an interrupt, else once.
func watchBackends(cmd *cobra.Command, o *options, watch bool) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	screen := newScreen(out)
	before, err := c.Balancers(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(backendsEvery)
	defer tick.Stop()
	for at := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil // interrupted
		case <-tick.C:
		}
		now, err := c.Balancers(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		took := time.Since(at)
		rated := rates(before, now, took)
		before, at = now, at.Add(took)
		switch {
		case o.json && !watch:
			return o.print(cmd, rated, nil)
		case o.json:
			err = o.printLine(cmd, rated, nil)
		case screen != nil:
			screen.draw(ratesText(rated, screen.width()-1))
		default:
			_, err = io.WriteString(out, ratesText(rated, 0))
		}
		if err != nil || !watch && screen == nil {
			return err
		}
	}
}

// rates returns the balancers of now with what was counted since before. A backend that is new, or whose counts started again, has
// none yet.
func rates(before, now []api.Balancer, took time.Duration) []ratedBalancer {
	old := map[[2]string]api.Backend{}
	for _, b := range before {
		for _, m := range b.Backends {
			old[[2]string{b.Name, m.Addr}] = m
		}
	}
	out := make([]ratedBalancer, 0, len(now))
	for _, b := range now {
		rated := ratedBalancer{Balancer: b, Backends: make([]ratedBackend, 0, len(b.Backends))}
		for _, m := range b.Backends {
			r := ratedBackend{Backend: m}
			if was, ok := old[[2]string{b.Name, m.Addr}]; ok && m.Total >= was.Total && m.Errors >= was.Errors {
				r.Rate = float64(m.Total-was.Total) / took.Seconds()
				r.ErrorRate = float64(m.Errors-was.Errors) / took.Seconds()
			}
			rated.Backends = append(rated.Backends, r)
		}
		out = append(out, rated)
	}
	return out
}

// ratesText is balancers as tables of at most that width, one for each.
func ratesText(bs []ratedBalancer, width int) string {
	var out strings.Builder
	for _, b := range bs {
		fmt.Fprintf(&out, "%s, %s, mode %s: %d connections, %d queued\n", b.Name, cmp.Or(b.Listen, "nowhere"), b.Mode, b.Connections, b.Queued)
		var rows [][]string
		for _, m := range b.Backends {
			rows = append(rows, []string{
				m.Name, m.Addr, backendState(m.Backend), m.Load(), rateText(m.Rate), rateText(m.ErrorRate), msText(m.P50), msText(m.P99),
				strconv.FormatInt(m.Errors, 10), m.Reason,
			})
		}
		header := []string{"BACKEND", "ADDR", "STATE", "CONNECTIONS", "CONN/S", "ERR/S", "P50", "P99", "ERRORS", "REASON"}
		_ = writeLines(&out, layTable(header, rows, width)) // a builder takes everything
	}
	return out.String()
}

func rateText(perSecond float64) string {
	if perSecond > 0 && perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// msText is a latency; 0: there is none.
func msText(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// backendState is the state of a backend, and what it is besides.
func backendState(m api.Backend) string {
	state := string(m.State)
	if m.Backup {
		state += " (backup)"
	}
	if m.Added {
		state += " (added)"
	}
	return state
}
