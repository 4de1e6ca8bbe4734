package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/observe/logs"
)

func serveCommand(o *options) *cobra.Command {
	var level slog.Level
	var folder string
	format := "text"
	cmd := &cobra.Command{
		Use:         "serve",
		Annotations: map[string]string{onInterrupt: interruptWaits},
		Short:       "Run the daemon; it reloads on SIGHUP and when the lab file changes",
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := firmware.CheckFolder(folder); err != nil {
				return err
			}
			lines := logs.NewWriter(os.Stderr)
			defer lines.Close()
			err := daemon.Run(cmd.Context(), daemon.Config{
				Lab:      o.lab,
				Version:  versionName(),
				Firmware: folder,
				Program:  "/proc/self/exe",
				Log:      newLogger(lines, format, level),

				LinesDropped: lines.Dropped,
			})
			return o.whichLab(err)
		},
	}
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least severe `level` that is logged: debug, info, warn or error")
	cmd.Flags().Lookup("log-level").DefValue = "info" // as the help spells it
	cmd.Flags().Var(&choice{&format, []string{"text", "json"}}, "log-format", "text or json")
	cmd.Flags().StringVar(&folder, "firmware", "", "`folder` of network boot programs that replace built-in ones (see bootlab firmware)")
	return cmd
}

// newLogger logs to w; under systemd the journal adds the time itself.
func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opts.ReplaceAttr = dropTime
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func dropTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
