package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/backup"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
)

// A backup has objects for longer than the archive. They return through the archive: this program, which can read the
// backup, sends them as one cascade, and the server restores that.
type fromBackup struct{ location, id, identity string }

func (b *fromBackup) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.location, "from", "", "restore objects of a backup in this directory or `s3://BUCKET/PREFIX`: KIND/NAME, or without it all of the namespace")
	f.StringVar(&b.id, "backup", "", "the `ID` of the backup with --from (default: the newest)")
	addIdentity(cmd, &b.identity)
}

// addIdentity adds the flag that opens encrypted backups.
func addIdentity(cmd *cobra.Command, identity *string) {
	cmd.Flags().StringVar(identity, "identity", "", "`file` of age-keygen with the identity that opens an encrypted backup")
}

// adopted begins the names of cascades with objects of a backup.
const adopted = "backup-"

// mostSent bounds the bytes of one request with objects of a backup.
const mostSent = 1 << 20

// spec sends the objects that the arguments name, and returns what restores them.
func (b *fromBackup) spec(cmd *cobra.Command, t *target, spec v1.RestoreSpec, args []string) (v1.RestoreSpec, error) {
	if spec.Cascade != "" || spec.UID != "" || spec.WithCascade {
		return spec, errors.New("--from restores KIND/NAME or a namespace, and not --cascade, --uid or --with-cascade")
	}
	c, err := t.open()
	if err != nil {
		return spec, err
	}
	want, err := c.wanted(args)
	if err != nil {
		return spec, err
	}
	target, err := openBackups(cmd.Context(), b.location, b.identity)
	if err != nil {
		return spec, err
	}
	m, err := target.Find(cmd.Context(), b.id)
	if err != nil {
		return spec, err
	}
	// The same request again finds what is there.
	sum := sha256.Sum256([]byte(strings.Join(append([]string{c.namespace}, args...), " ")))
	spec.Cascade = adopted + strings.ToLower(m.ID) + "-" + hex.EncodeToString(sum[:5])
	size, sent := 0, 0
	send := func() error {
		if len(spec.Objects) == 0 {
			return nil
		}
		sent += len(spec.Objects)
		err := send(cmd.Context(), c.rest, request{method: http.MethodPost, path: archivePath + "/restores", body: restoreOf(spec)}, &v1.Restore{})
		spec.Objects, size = nil, 0
		return err
	}
	err = target.Objects(cmd.Context(), m, want, func(o object.Object) error {
		if size += len(o.Body); size > mostSent {
			if err := send(); err != nil {
				return err
			}
			size = len(o.Body)
		}
		spec.Objects = append(spec.Objects, v1.BackupObject{Kind: o.Kind, Object: runtime.RawExtension{Raw: o.Body}})
		return nil
	})
	if err = cmp.Or(err, send()); err == nil && sent == 0 {
		err = fmt.Errorf("backup %s has none of it", m.ID)
	}
	return spec, err
}

// wanted returns the objects that arguments name, or those of the namespace, with itself.
func (c *client) wanted(args []string) (func(object.Key) bool, error) {
	if len(args) == 0 {
		return func(k object.Key) bool {
			return k.Namespace == c.namespace || k == object.Key{Kind: object.Namespaces, Name: c.namespace}
		}, nil
	}
	subjects, err := parseSubjects(args)
	if err != nil {
		return nil, err
	}
	var keys []object.Key
	for _, s := range subjects {
		key := object.Key{Kind: strings.ToLower(s.kind), Name: s.name} // of a kind that is gone: as the backup calls it
		if mapping, err := c.mappingFor(s.kind); err == nil {
			key.Kind = strings.TrimSuffix(mapping.Resource.Resource+"."+mapping.Resource.Group, ".")
			if mapping.Scope.Name() == meta.RESTScopeNameRoot {
				keys = append(keys, key)
				continue
			}
		}
		key.Namespace = c.namespace
		keys = append(keys, key)
	}
	return func(k object.Key) bool { return slices.Contains(keys, k) }, nil
}

func openBackups(ctx context.Context, location, identity string) (*backup.Target, error) {
	target, err := backup.OpenTarget(ctx, location, false)
	if err == nil && identity != "" {
		err = target.Unlock(identity)
	}
	return target, err
}
