package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// options are the flags that every command takes.
type options struct {
	lab    string
	server string
	token  string
	json   bool
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.lab, "lab", daemon.DefaultLab, "lab `file`, or folder of *.yaml files")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.server, "server", os.Getenv("BOOTLAB_SERVER"), "`address` of the daemon: its Unix socket, http://host:port or https://host (default: the lab file's admin_socket)")
	f.StringVar(&o.token, "token", os.Getenv("BOOTLAB_TOKEN"), "`token` for http:// and https:// addresses (see bootlab token); ps shows it to other users, so set BOOTLAB_TOKEN instead")
	f.Lookup("token").DefValue = "" // the help prints defaults
}

// client returns a client of the daemon. Where no address is given, the lab file says where its socket is; a lab file that
// is broken must not keep anyone from asking the daemon that still runs the last good one.
func (o *options) client() (*api.Client, error) {
	server := o.server
	if server == "" {
		server = load.Appliance(o.lab).AdminSocket
		if _, err := os.Stat(o.lab); errors.Is(err, fs.ErrNotExist) && o.lab != daemon.DefaultLab && !servesFile(server, o.lab) {
			return nil, fmt.Errorf("the lab file says where the daemon is: %w; no daemon of that file answers at the default socket, %s: set the lab file with --lab, or the daemon with --server", err, server)
		}
	}
	return api.NewClient(server, o.token)
}

// servesFile reports whether the daemon at a socket serves that lab file, which was moved away: a name with a mistake must not reach the
// daemon of another lab.
func servesFile(socket, file string) bool {
	c, err := api.NewClient(socket, "")
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := c.Status(ctx)
	if err != nil {
		return false
	}
	whole, err := filepath.Abs(file)
	return err == nil && s.LabFile == whole
}

// noLab adds to the error that no daemon runs that the lab file, which says where, is missing or cannot be read. Who has named the lab file
// or the daemon knows where it is.
func noLab(cmd *cobra.Command, err error) error {
	if !errors.Is(err, api.ErrNoDaemon) || cmd.Flag("server").Value.String() != "" {
		return err
	}
	path := cmd.Flag("lab").Value.String()
	if denied := unreadable(path); denied != nil {
		return fmt.Errorf("%w; this is the default socket: the lab file, which may name another, cannot be read (%w): run this as a user who may, or name the daemon with --server", err, denied)
	}
	if cmd.Flag("lab").Changed {
		return err
	}
	if _, missing := os.Stat(daemon.DefaultLab); errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("%w; %s does not exist: if your lab file is another one, name it with --lab", err, daemon.DefaultLab)
	}
	return err
}

// unreadable returns an error if the lab file, or the folder that it is, exists and this user may not read it. It opens nothing: a FIFO would
// block.
func unreadable(path string) error {
	const read = 4 // R_OK
	if err := syscall.Access(path, read); errors.Is(err, fs.ErrPermission) {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}

// print writes v as JSON if that was asked for, else as text.
func (o *options) print(cmd *cobra.Command, v any, text func() error) error {
	if !o.json {
		return text()
	}
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLine writes v as one line of JSON if that was asked for, else as text: for answers that never end.
func (o *options) printLine(cmd *cobra.Command, v any, text func() error) error {
	if !o.json {
		return text()
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
}
