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
	var list, move bool
	cmd := &cobra.Command{
		Use:   "undelete REPO:TAG | REPO@DIGEST | REPO:TAG@DIGEST | --list [REPO]",
		Short: "Restore a deleted tag or manifest",
		Long: `Restore what was deleted from the registry and is not collected yet: a deleted
tag, a tag as it was before a push moved it to another manifest, or a manifest with
the tags that it had. A tag that points at another manifest now moves only with
--move-tag. "exeunt registry gc stats" shows how long that is possible,
unless spec.reviewAfterSeconds of the Repository says otherwise.

To restore a whole repository: "exeunt restore repository/NAME".`,
		Example: `  exeunt registry undelete --list shop/web
  exeunt registry undelete shop/web:v1
  exeunt registry undelete shop/web@sha256:9f86d0…
  exeunt registry undelete --move-tag shop/web:latest    # undo the last push of latest`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, write, err := undeleteRequest(list, move, strings.Join(args, ""))
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
	cmd.Flags().BoolVar(&move, "move-tag", false, "move the tag if it points at another manifest now; without this it is left as it is")
	cmd.Flags().BoolVar(&list, "list", false, "list what can be restored, in one repository or in all")
	return cmd
}

// undeleteRequest returns the request for the tag or manifest of the arguments.
func undeleteRequest(list, move bool, argument string) (registryRequest, writeAnswer, error) {
	if list {
		return registryRequest{http.MethodGet, "/deleted", map[string]string{"repository": argument}}, writeDeleted, nil
	}
	rest, digest, _ := strings.Cut(argument, "@")
	repository, tag, _ := strings.Cut(rest, ":")
	if repository == "" || tag == "" && digest == "" {
		return registryRequest{}, nil, errors.New("say what to bring back: REPO:TAG, REPO@DIGEST, or --list")
	}
	parameters := map[string]string{"repository": repository, "tag": tag, "digest": digest}
	if move {
		parameters["moveTag"] = "true"
	}
	return registryRequest{http.MethodPost, "/undelete", parameters}, writeUndeleted, nil
}

// deletedEntry is a tag or manifest that can be restored, or was.
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

// happened returns the text of an event.
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
