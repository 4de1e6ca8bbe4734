package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"bootlab/internal/daemon"
)

func serveCommand(o *options) *cobra.Command {
	var level slog.Level
	var format, firmware string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon; SIGHUP or a changed lab file reloads it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.Run(cmd.Context(), daemon.Config{
				Lab:      o.lab,
				Version:  version(),
				Firmware: firmware,
				Log:      newLogger(format, level),
			})
		},
	}
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&firmware, "firmware", "", "`folder` of iPXE builds that replace the built-in ones")
	return cmd
}

// newLogger logs to stderr; under systemd the journal adds the time itself.
func newLogger(format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opts.ReplaceAttr = dropTime
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

func dropTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
