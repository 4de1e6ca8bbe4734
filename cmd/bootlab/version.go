package main

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Set by the linker, as make build does: -X main.version=v0.1.0 -X main.commit=0123456789ab -X main.date=2026-11-22T10:00:00Z.
// Empty values are taken from Go's build information.
var version, commit, date string

// versionName returns the version for status and metrics; the commit if there is none.
func versionName() string {
	settings, module := buildInfo()
	return cmp.Or(version, short(settings["vcs.revision"]), module)
}

// versionText returns version, commit and date, as far as they are known.
func versionText() string {
	settings, module := buildInfo()
	var more []string
	if c := short(cmp.Or(commit, settings["vcs.revision"])); c != "" {
		more = append(more, "commit "+c)
	}
	if d := cmp.Or(date, settings["vcs.time"]); d != "" {
		more = append(more, d)
	}
	text := cmp.Or(version, module)
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return text
}

func buildInfo() (settings map[string]string, module string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, "unknown"
	}
	settings = map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return settings, info.Main.Version
}

func short(commit string) string { return commit[:min(len(commit), 12)] }
