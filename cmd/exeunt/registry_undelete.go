package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newRegistryUndelete() *cobra.Command {
	r := registryCommand{output: output{formats: []string{"name"}}}
	var list bool
	cmd := &cobra.Command{
		Use:   "undelete REPO:TAG | REPO@DIGEST | REPO:TAG@DIGEST | --list [REPO]",
		Short: "Bring back a tag or manifest that was deleted",
		Long: `Bring back what was deleted from the registry and has not been collected: a tag
that was deleted, a tag as it was before it was pushed to another manifest, or a
manifest with the tags that it had. For how long that is possible is said by
"exeunt registry gc stats", and by spec.reviewAfterSeconds of the Repository.

A whole repository is brought back by "exeunt restore repository/NAME".`,
		Example: `  exeunt registry undelete --list shop/web
  exeunt registry undelete shop/web:v1
  exeunt registry undelete shop/web@sha256:9f86d0…`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, write, err := undeleteRequest(list, strings.Join(args, ""))
			if err != nil {
				return err
			}
			raw, err := r.ask(cmd.Context(), request)
			if err != nil {
				return err
			}
			var entries []deletedEntry
			if err := json.Unmarshal(raw, &entries); err != nil {
				return fmt.Errorf("read the server's answer: %w", err)
			}
			d := document{value: raw, text: forPeople(raw, write)}
			for i := range entries {
				d.names = append(d.names, entries[i].name())
			}
			return r.print(cmd.OutOrStdout(), d)
		},
	}
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&list, "list", false, "show what can be brought back, of one repository or of all")
	return cmd
}

// undeleteRequest reads what is to be brought back.
func undeleteRequest(list bool, argument string) (registryRequest, writeAnswer, error) {
	if list {
		return registryRequest{http.MethodGet, "/deleted", map[string]string{"repository": argument}}, writeDeleted, nil
	}
	rest, digest, _ := strings.Cut(argument, "@")
	repository, tag, _ := strings.Cut(rest, ":")
	if repository == "" || tag == "" && digest == "" {
		return registryRequest{}, nil, errors.New("say what to bring back: REPO:TAG, REPO@DIGEST, or --list")
	}
	parameters := map[string]string{"repository": repository, "tag": tag, "digest": digest}
	return registryRequest{http.MethodPost, "/undelete", parameters}, writeUndeleted, nil
}

// deletedEntry is something that can be, or was, brought back.
type deletedEntry struct {
	Repository, Tag, Digest, Event string
	DeletedAt                      time.Time
	Until                          *time.Time
}

func (d *deletedEntry) name() string {
	if d.Tag == "" {
		return d.Repository + "@" + d.Digest
	}
	return d.Repository + ":" + d.Tag + "@" + d.Digest
}

// happened is an event as people say it.
var happened = map[string]string{
	"tag_delete": "deleted", "tag_switch": "switched", "manifest_delete": "deleted with its manifest",
}

func writeDeleted(p *printer, raw []byte) error {
	var list []deletedEntry
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, d := range list {
		what := happened[d.Event]
		if what == "" {
			what = d.Event
		}
		text := fmt.Sprintf("%s  %s %s ago", d.name(), what, time.Since(d.DeletedAt).Round(time.Second))
		if d.Until != nil {
			text += fmt.Sprintf(", reviewed in %s", max(time.Until(*d.Until), 0).Round(time.Second))
		}
		p.line("%s", text)
	}
	if len(list) == 0 {
		p.line("nothing can be brought back")
	}
	return nil
}

func writeUndeleted(p *printer, raw []byte) error {
	var list []deletedEntry
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, d := range list {
		p.line("%s is back", d.name())
	}
	return nil
}
