package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// question is a command that sends one request to the server and prints the answer.
type question struct {
	target
	output
}

// writeAnswer prints an answer of the server for people.
type writeAnswer func(raw json.RawMessage, p *printer)

// decoded makes a writeAnswer from a function that prints the answer's type.
func decoded[T any](write func(answer *T, p *printer)) writeAnswer {
	return func(raw json.RawMessage, p *printer) {
		var answer T
		if err := json.Unmarshal(raw, &answer); err != nil {
			p.err = fmt.Errorf("read the server's answer: %w", err)
			return
		}
		write(&answer, p)
	}
}

// command completes a command: it adds the flags, and sends the request that ask makes of the
// arguments.
func (q *question) command(cmd *cobra.Command, ask func(args []string) (request, error), write writeAnswer) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := ask(args)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := q.do(cmd.Context(), r, &raw); err != nil {
			return err
		}
		return q.print(cmd.OutOrStdout(), document{value: raw, text: func(p *printer) { write(raw, p) }})
	}
	q.addServerFlags(cmd)
	q.addFlag(cmd)
	return cmd
}
