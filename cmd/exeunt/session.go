package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/cmd/exeunt/past"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// session is the past.Session of a command.
type session struct {
	target
	output
	client *client // set by Find
}

// Flags, Find, Target, Send, Kinds, Restore, Print, List and Formatted are part of past.Session.
func (s *session) Flags(cmd *cobra.Command) {
	s.target.addFlags(cmd)
	s.output.addFlag(cmd)
}

// Find implements past.Session.
func (s *session) Find(args []string) (string, error) {
	named, err := oneSubject(args)
	if err != nil {
		return "", err
	}
	if s.client, err = s.open(); err != nil {
		return "", err
	}
	mapping, err := s.client.mappingFor(named.kind)
	if err != nil {
		return "", err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace = s.client.namespace
	}
	return past.ResourcePath(mapping.Resource, namespace) + "/" + named.name, nil
}

// Target implements past.Session.
func (s *session) Target(args []string) (v1.RestoreSpec, error) {
	specs, err := restoreSpecs(&s.target, v1.RestoreSpec{}, args)
	if err != nil || len(specs) != 1 {
		return v1.RestoreSpec{}, cmp.Or(err, errors.New("name one object, or a namespace"))
	}
	return specs[0], nil
}

// Send implements past.Session.
func (s *session) Send(ctx context.Context, method, path string, query map[string]string, into any) error {
	return send(ctx, s.client.rest, request{method: method, path: path, parameters: query}, into)
}

// Put implements expire.Session.
func (s *session) Put(ctx context.Context, method, path string, patch types.PatchType, body, into any) error {
	return send(ctx, s.client.rest, request{method: method, path: path, body: body, patch: patch}, into)
}

// Restore implements past.Session.
func (s *session) Restore(ctx context.Context, spec v1.RestoreSpec, notes io.Writer) (v1.RestoreStatus, error) {
	server, err := s.connect()
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	return restore(ctx, server, spec, notes)
}

// Print implements past.Session.
func (s *session) Print(w io.Writer, value any, text func(past.Printer)) error {
	o := s.output
	if text == nil && o.format == "" {
		o.format = "yaml"
	}
	return o.print(w, document{value: value, text: func(p *printer) { text(p) }})
}

// List implements past.Session.
func (s *session) List(w io.Writer, kind string, items []any, none, header string, row func(int) []any) error {
	i := -1
	return s.output.print(w, listed(v1.GroupVersion.String(), kind, items, none, header, func(any) (string, []any) {
		i++
		return "", row(i)
	}))
}

// Formatted implements past.Session.
func (s *session) Formatted() bool { return s.format != "" }

// Line implements past.Printer.
func (p *printer) Line(format string, args ...any) { p.line(format, args...) }
