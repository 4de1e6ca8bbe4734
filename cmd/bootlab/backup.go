package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/file/replace"
	"github.com/bootlab/bootlab/internal/store/backup"
)

func backupCommand(o *options) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save leases, install states and timelines to a file (- for standard output) while the daemon serves",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if verify {
				return verifyBackup(cmd, o, args[0])
			}
			return saveBackup(cmd, o, args[0])
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "only check that FILE (- for standard input) is a whole backup, and show what it holds; needs no daemon")
	return cmd
}

// A backupResult is the result of backup as JSON.
type backupResult struct {
	File string `json:"file"`
	backup.Summary
	Bytes int64 `json:"bytes"`
}

func saveBackup(cmd *cobra.Command, o *options, path string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	if path == "-" {
		done, err := download(cmd.Context(), c, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "saved "+backupText(done)) // standard output is the backup
		return nil
	}
	if path, err = writable(path); err != nil {
		return err
	}
	result := backupResult{File: path}
	err = replace.File(path, 0o600, func(f *os.File) error {
		done, err := download(cmd.Context(), c, f)
		if err != nil {
			return err
		}
		result.Summary = done
		result.Bytes, err = f.Seek(0, io.SeekCurrent)
		return err
	})
	if err != nil {
		return err
	}
	return o.print(cmd, result, func() error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "saved %s: %s\n", path, backupText(result.Summary))
		return err
	})
}

// download copies a backup from the daemon to w and checks that it is whole.
func download(ctx context.Context, c *api.Client, w io.Writer) (backup.Summary, error) {
	stream, err := c.Backup(ctx)
	if err != nil {
		return backup.Summary{}, err
	}
	defer stream.Close()
	out := &checkedWriter{to: w}
	done, err := backup.Verify(io.TeeReader(stream, out), func(backup.Entry) {})
	switch {
	case out.err != nil:
		return done, fmt.Errorf("write the backup: %w", out.err)
	case ctx.Err() != nil:
		return done, api.ErrInterrupted
	case err != nil:
		return done, fmt.Errorf("the daemon sent no whole backup, nothing was saved: %w", err)
	}
	return done, nil
}

// A checkedWriter keeps the error of a writer apart from those of what is read.
type checkedWriter struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (w *checkedWriter) Write(b []byte) (n int, err error) {
	n, err = w.to.Write(b)
	w.err = err
	return n, err
}

// writable returns the path that a backup can be written to: where it is a link, what the link leads to.
func writable(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return "", fmt.Errorf("the folder of the backup: %w", err)
		}
		return path, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a folder: name a file in it, such as %s", path, filepath.Join(path, "bootlab-"+time.Now().Format(time.DateOnly)+".backup"))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file; - writes to standard output", path)
	}
	return filepath.EvalSymlinks(path)
}

// A byteCounter counts what is written to it.
type byteCounter struct{ n int64 }

// Write implements io.Writer.
func (c *byteCounter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}

func verifyBackup(cmd *cobra.Command, o *options, path string) error {
	in := cmd.InOrStdin()
	if path == "-" {
		path = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	count := &byteCounter{}
	done, err := backup.Verify(io.TeeReader(in, count), func(backup.Entry) {})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	result := backupResult{File: path, Summary: done, Bytes: count.n}
	return o.print(cmd, result, func() error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole: %s\n", path, backupText(done))
		return err
	})
}

// kindNames name what a backup holds, in the order that people look for it.
var kindNames = []struct{ kind, one, many string }{
	{"lease", "lease", "leases"}, {"install", "install state", "install states"}, {"drain", "drained backend", "drained backends"},
	{"backend", "backend set at run time", "backends set at run time"},
	{"discovered", "hardware report of an unknown machine", "hardware reports of unknown machines"}, {"serial", "zone serial", "zone serials"},
	{"timelines", "machine with a timeline", "machines with a timeline"}, {"timeline", "part of timelines", "parts of timelines"},
}

// backupText describes a backup in one line.
func backupText(s backup.Summary) string {
	text, named := []string{}, 0
	for _, k := range kindNames {
		text = append(text, counted(s.Kinds[k.kind], k.one, k.many))
		named += s.Kinds[k.kind]
	}
	if s.Entries > named {
		text = append(text, counted(s.Entries-named, "other entry", "other entries"))
	}
	return fmt.Sprintf("lab %s, %s, by bootlab %s: %s", s.Lab, localTime(s.Created), s.Version, strings.Join(text, ", "))
}

// counted writes a number of things.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
