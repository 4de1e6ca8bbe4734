package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
)

// Consoles are the serial consoles of virtual machines.
type Consoles interface {
	// Console returns what happens on a host's console from now on. The channel is closed when ctx ends, or when the reader is too slow.
	Console(ctx context.Context, host string, take api.Take) (<-chan api.ConsoleOutput, error)
	// TypeConsole types on it.
	TypeConsole(ctx context.Context, host string, input []byte) error
	// ConsoleBoots returns the boots of a host whose output is kept, the oldest first.
	ConsoleBoots(ctx context.Context, host string) []api.ConsoleBoot
	// ConsoleLog returns the output of the boot that started at a time, as the machine wrote it.
	ConsoleLog(ctx context.Context, host string, started time.Time) ([]byte, error)
}

// console streams a console, or takes what is typed on it.
func (a *Admin) console(w http.ResponseWriter, r *http.Request) {
	host, err := hostOf(r)
	switch {
	case err != nil:
		a.refuse(w, r, err)
	case r.Method == http.MethodPost:
		a.json(func(r *http.Request) (any, error) { return struct{}{}, a.typeConsole(r, host) })(w, r)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST")
		a.refuse(w, r, &api.Error{Status: http.StatusMethodNotAllowed, Message: r.Method + " is not for " + r.URL.Path, Hint: "want GET or POST"})
	default:
		take := api.TakeFree
		if r.FormValue("take") == "1" {
			take = api.TakeAlways
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		output, err := a.deps.Consoles.Console(ctx, host, take)
		stream(a, w, r, output, err)
	}
}

func (a *Admin) typeConsole(r *http.Request, host string) error {
	var in api.ConsoleInput
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return &api.Error{Status: http.StatusBadRequest, Message: "the body is not what is typed: " + err.Error(), Hint: `want {"input": "BASE64"}`}
	}
	return a.deps.Consoles.TypeConsole(r.Context(), host, in.Input)
}

// getConsoleLog answers the boots whose output is kept, or with boot= the output of one as text.
func (a *Admin) getConsoleLog(w http.ResponseWriter, r *http.Request) {
	host, err := hostOf(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	at := r.FormValue("boot")
	if at == "" {
		a.json(func(r *http.Request) (any, error) { return list(a.deps.Consoles.ConsoleBoots(r.Context(), host)), nil })(w, r)
		return
	}
	started, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		a.refuse(w, r, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("boot=%.60q is no time", at), Hint: "want the start of a boot, as GET vms/HOST/log lists them"})
		return
	}
	output, err := a.deps.Consoles.ConsoleLog(r.Context(), host, started)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.FormValue("raw") != "1" {
		output = consolelog.Plain(output)
	}
	_, _ = w.Write(output)
}

// consoleTail is how much of the last boot's console a host's page shows.
const consoleTail = 4 << 10

// A consoleView is what a host's page shows of its console.
type consoleView struct {
	Boots []api.ConsoleBoot // the newest first
	Tail  string            // of the newest
}

// consoleOf returns what is kept of a host's console; nil: nothing.
func (a *Admin) consoleOf(ctx context.Context, host string) *consoleView {
	boots := a.deps.Consoles.ConsoleBoots(ctx, host)
	if len(boots) == 0 {
		return nil
	}
	v := &consoleView{}
	for i := range boots {
		v.Boots = append(v.Boots, boots[len(boots)-1-i])
	}
	output, err := a.deps.Consoles.ConsoleLog(ctx, host, v.Boots[0].Started)
	if err != nil {
		return v
	}
	text := consolelog.Plain(output)
	v.Tail = string(text[max(0, len(text)-consoleTail):])
	return v
}
