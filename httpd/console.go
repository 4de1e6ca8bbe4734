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

// getConsole streams a console.
func (a *Admin) getConsole(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	output, err := a.deps.Backend.Console(ctx, r.PathValue("host"))
	stream(a, w, r, output, err)
}

// postConsoleInput types on a console.
func (a *Admin) postConsoleInput(r *http.Request, _ params) (any, error) {
	var in api.ConsoleInput
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: "the body is not what is typed: " + err.Error(), Hint: `want {"input": "BASE64"}`}
	}
	return struct{}{}, a.deps.Backend.TypeConsole(r.Context(), r.PathValue("host"), in.Input)
}

// getConsoleLog answers the boots whose output is kept, or with boot= the output of one as text.
func (a *Admin) getConsoleLog(w http.ResponseWriter, r *http.Request) {
	host, at := r.PathValue("host"), r.FormValue("boot")
	if at == "" {
		a.json(func(r *http.Request) (any, error) { return list(a.deps.Backend.ConsoleBoots(r.Context(), host)), nil })(w, r)
		return
	}
	started, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		a.refuse(w, r, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("boot=%.60q is no time", at), Hint: "want the start of a boot, as GET vms/HOST/log lists them"})
		return
	}
	output, err := a.deps.Backend.ConsoleLog(r.Context(), host, started)
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
	boots := a.deps.Backend.ConsoleBoots(ctx, host)
	if len(boots) == 0 {
		return nil
	}
	v := &consoleView{}
	for i := range boots {
		v.Boots = append(v.Boots, boots[len(boots)-1-i])
	}
	output, err := a.deps.Backend.ConsoleLog(ctx, host, v.Boots[0].Started)
	if err != nil {
		return v
	}
	text := consolelog.Plain(output)
	v.Tail = string(text[max(0, len(text)-consoleTail):])
	return v
}
