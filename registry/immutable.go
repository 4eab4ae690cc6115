package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/exeunt/exeunt/lifecycle"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/sqldb"
)

// checkTags refuses to move or delete immutable tags. tags are those that would leave
// their manifest, and its digest. It runs in the transaction that writes them, when that
// has locked their names.
func checkTags(ctx context.Context, tx *sqldb.Tx, repository string, tags map[string]string) error {
	if len(tags) == 0 {
		return nil
	}
	namespace, name := v1.Name(repository)
	rules, err := TagRules(ctx, tx, namespace, repository)
	if err != nil {
		return err
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		for _, rule := range rules {
			if pattern := lifecycle.ImmutableTag(rule, tag); pattern != "" && !confirmed(rules, tag, tags[tag]) {
				return errorf(Denied, "tag %s of %s is immutable (%s), and points at %s; push another tag, or let this one go: kubectl annotate repository %s -n %s --overwrite %s=%s@%s",
					tag, repository, pattern, tags[tag], name, namespace, lifecycle.ConfirmTag, tag, tags[tag]).as(http.StatusConflict)
			}
		}
	}
	return nil
}

func confirmed(rules []map[string]string, tag, digest string) bool {
	return slices.ContainsFunc(rules, func(rule map[string]string) bool { return lifecycle.TagConfirmed(rule, tag, digest) })
}

// TagRules returns the annotations of the Repository and of its Namespace.
func TagRules(ctx context.Context, s sqldb.Sender, namespace, repository string) (rules []map[string]string, err error) {
	err = sqldb.Each(ctx, s, func(row sqldb.Row) error {
		var body []byte
		if err := row.Scan(&body); err != nil {
			return err
		}
		var o struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(body, &o); err != nil {
			return err
		}
		rules = append(rules, o.Metadata.Annotations)
		return nil
	}, findTagRules, namespace, repository)
	if err != nil {
		return nil, fmt.Errorf("read which tags of %s are immutable: %w", repository, err)
	}
	return rules, nil
}
