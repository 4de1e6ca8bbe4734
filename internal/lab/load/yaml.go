package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// YAMLError returns what makes text no stream of YAML documents, and where; line and column count from 1, and are 0 where
// the parser does not say. It is for documents that only have to be YAML: what stands in them is not looked at.
func YAMLError(text []byte) (line, column int, err error) {
	defer func() {
		if p := recover(); p != nil { // a bug of the parser is no reason to end the daemon
			line, column, err = 0, 0, fmt.Errorf("cannot be read: %v", p)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return 0, 0, err
	}
	for {
		switch err := loader.Load(new(yaml.Node)); {
		case errors.Is(err, io.EOF):
			return 0, 0, nil
		case err != nil:
			line, column, reason := yamlReason(err)
			return line, column, errors.New(reason)
		}
	}
}

// yamlReason takes apart an error of the YAML parser.
func yamlReason(err error) (line, column int, reason string) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return 0, 0, strings.TrimPrefix(err.Error(), "yaml: ")
	}
	return load.Mark.Line, load.Mark.Column, strings.TrimPrefix(load.Message, "yaml: ")
}
