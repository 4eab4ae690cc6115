package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/registry"
)

func newRegistryUndelete() *cobra.Command {
	var t target
	var o output
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
			ask, err := undeleteRequest(list, move, strings.Join(args, ""))
			if err != nil {
				return err
			}
			entries := []registry.Deleted{}
			if err := t.do(cmd.Context(), ask, &entries); err != nil {
				return err
			}
			d := document{value: entries, text: func(p *printer) { writeUndeleted(p, entries) }}
			if list {
				d.text = func(p *printer) { writeDeleted(p, entries) }
			}
			for i := range entries {
				d.names = append(d.names, deletedName(&entries[i]))
			}
			return o.print(cmd.OutOrStdout(), d)
		},
	}
	t.addServerFlags(cmd)
	o.addFlag(cmd, "name")
	cmd.Flags().BoolVar(&move, "move-tag", false, "move the tag if it points at another manifest now; without this it is left as it is")
	cmd.Flags().BoolVar(&list, "list", false, "list what can be restored, in one repository or in all")
	return cmd
}

// undeleteRequest returns the request for the tag or manifest of the arguments.
func undeleteRequest(list, move bool, argument string) (request, error) {
	if list {
		return request{method: http.MethodGet, path: registryPath + "/deleted", parameters: map[string]string{"repository": argument}}, nil
	}
	rest, digest, _ := strings.Cut(argument, "@")
	repository, tag, _ := strings.Cut(rest, ":")
	if repository == "" || tag == "" && digest == "" {
		return request{}, errors.New("say what to bring back: REPO:TAG, REPO@DIGEST, or --list")
	}
	parameters := map[string]string{"repository": repository, "tag": tag, "digest": digest}
	if move {
		parameters["moveTag"] = "true"
	}
	return request{method: http.MethodPost, path: registryPath + "/undelete", parameters: parameters}, nil
}

func deletedName(d *registry.Deleted) string {
	if d.Tag == "" {
		return d.Repository + "@" + d.Digest
	}
	return d.Repository + ":" + d.Tag + "@" + d.Digest
}

// happened returns the text of an event.
var happened = map[string]string{
	"tag_delete": "deleted", "tag_switch": "switched", "manifest_delete": "deleted with its manifest",
}

func writeDeleted(p *printer, list []registry.Deleted) {
	for i := range list {
		d := &list[i]
		text := fmt.Sprintf("%s  %s %s ago", deletedName(d), cmp.Or(happened[d.Event], d.Event), time.Since(d.DeletedAt).Round(time.Second))
		if d.Until != nil {
			text += fmt.Sprintf(", reviewed in %s", max(time.Until(*d.Until), 0).Round(time.Second))
		}
		p.line("%s", text)
	}
	if len(list) == 0 {
		p.line("nothing can be brought back")
	}
}

func writeUndeleted(p *printer, list []registry.Deleted) {
	for i := range list {
		p.line("%s is back", deletedName(&list[i]))
	}
}
