package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	// maxManifest is the maximum size of a manifest in bytes.
	maxManifest = 4 << 20
	// maxDescriptors bounds the rows of one manifest. Lists can be nested, but
	// not in a cycle: a manifest cannot contain its own digest.
	maxDescriptors = 10_000
)

// The supported media types of manifests, besides OCI's own.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	// schema1Prefix begins the types of Docker's schema 1, signed or not.
	schema1Prefix = "application/vnd.docker.distribution.manifest.v1+"
	foreignLayer  = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
	// notDistributable is in the types of OCI layers that are not pushed.
	notDistributable = ".nondistributable."
)

// manifest is what the registry needs to know of a manifest or list.
type manifest struct {
	mediaType    string
	artifactType string         // the filter of referrers; empty means none
	subject      digest.Digest  // empty means none
	config       *v1.Descriptor // nil means none
	layers       []v1.Descriptor
	children     []v1.Descriptor // of a list
}

// document is any manifest or list. Its media type says which parts are allowed.
type document struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        *v1.Descriptor    `json:"config"`
	Layers        *[]v1.Descriptor  `json:"layers"`
	Manifests     *[]v1.Descriptor  `json:"manifests"`
	Subject       *v1.Descriptor    `json:"subject"`
	Annotations   map[string]string `json:"annotations"`
	FSLayers      []json.RawMessage `json:"fsLayers"` // schema 1
}

// parseManifest parses a manifest with the Content-Type of its request, which
// may be empty. It is pure. Its errors are for the client.
func parseManifest(contentType string, payload []byte) (*manifest, error) {
	mediaType := baseMediaType(contentType)
	if strings.HasPrefix(mediaType, schema1Prefix) {
		return nil, errSchema1()
	}
	if err := object.CheckDepth(payload); err != nil {
		return nil, errorf(ManifestInvalid, "%v", err)
	}
	var doc document
	decoder := json.NewDecoder(bytes.NewReader(payload))
	if err := decoder.Decode(&doc); err != nil {
		return nil, errorf(ManifestInvalid, "the manifest cannot be parsed: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errorf(ManifestInvalid, "there is data after the end of the manifest")
	}
	if doc.SchemaVersion == 1 || doc.FSLayers != nil {
		return nil, errSchema1()
	}
	if err := doc.checkUnambiguous(payload); err != nil {
		return nil, err
	}
	if doc.SchemaVersion != 2 {
		return nil, errorf(ManifestInvalid, "schemaVersion is %d, not 2", doc.SchemaVersion)
	}
	if mediaType == "" || mediaType == "application/json" {
		mediaType = doc.MediaType
	}
	if doc.MediaType != "" && doc.MediaType != mediaType {
		return nil, errorf(ManifestInvalid, "Content-Type is %s, but the manifest says %s", mediaType, doc.MediaType)
	}
	if doc.ArtifactType != "" && !checkMediaType(doc.ArtifactType) {
		return nil, errorf(ManifestInvalid, "artifactType is not a media type")
	}
	m := &manifest{mediaType: mediaType, artifactType: doc.ArtifactType}
	if err := m.take(&doc); err != nil {
		return nil, err
	}
	return m, m.check()
}

// checkUnambiguous refuses a manifest that another parser could read differently:
// with a duplicate field, of which some parsers take the first and some the
// last; or with a field name in another case (Layers), which Go accepts and most
// others do not. Such a client would pull content that the registry does not
// keep for it.
func (doc *document) checkUnambiguous(payload []byte) error {
	var strict document
	twice, err := strictjson.UnmarshalStrict(payload, &strict, strictjson.DisallowDuplicateFields)
	if err != nil {
		return errorf(ManifestInvalid, "the manifest cannot be parsed: %v", err)
	}
	if len(twice) > 0 {
		return errorf(ManifestInvalid, "the manifest is ambiguous: %v", twice[0])
	}
	if !reflect.DeepEqual(doc, &strict) {
		return errorf(ManifestInvalid, "the manifest is ambiguous: a field has its name in the wrong case")
	}
	return nil
}

func errSchema1() error {
	return errorf(ManifestInvalid, "manifests of schema 1 are not supported: push schema 2 or an OCI manifest")
}

// take stores the parts that the media type allows. A document that could be of
// either type is refused: two clients would see two different images in it.
func (m *manifest) take(doc *document) error {
	switch m.mediaType {
	case v1.MediaTypeImageManifest, dockerManifest:
		if doc.Config == nil || doc.Layers == nil || doc.Manifests != nil {
			return errorf(ManifestInvalid, "a manifest of type %s needs config and layers, and no manifests", m.mediaType)
		}
		m.config, m.layers = doc.Config, *doc.Layers
		m.artifactType = cmp.Or(m.artifactType, doc.Config.MediaType)
	case v1.MediaTypeImageIndex, dockerList:
		if doc.Manifests == nil || doc.Config != nil || doc.Layers != nil {
			return errorf(ManifestInvalid, "a list of type %s needs manifests, and no config or layers", m.mediaType)
		}
		m.children = *doc.Manifests
	case "":
		return errorf(ManifestInvalid, "the manifest has neither a Content-Type nor a mediaType")
	default:
		return errorf(ManifestInvalid, "manifests of type %q are not supported", m.mediaType)
	}
	if doc.Subject != nil {
		m.subject = doc.Subject.Digest
		return checkDescriptor("subject", doc.Subject)
	}
	return nil
}

// check checks that the descriptors can be stored.
func (m *manifest) check() error {
	if n := len(m.layers) + len(m.children); n > maxDescriptors {
		return errorf(ManifestInvalid, "the manifest refers to %d others, more than %d", n, maxDescriptors)
	}
	if m.config != nil {
		if err := checkDescriptor("config", m.config); err != nil {
			return err
		}
	}
	for i := range m.layers {
		if err := checkDescriptor("layer", &m.layers[i]); err != nil {
			return err
		}
	}
	for i := range m.children {
		if err := checkDescriptor("manifest", &m.children[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkDescriptor(what string, d *v1.Descriptor) error {
	if _, err := parseDigest(d.Digest.String()); err != nil {
		return errorf(ManifestInvalid, "%s: %q is not a valid digest, or its algorithm is not supported", what, d.Digest)
	}
	if !checkMediaType(d.MediaType) {
		return errorf(ManifestInvalid, "%s %s: %q is not a media type", what, d.Digest, d.MediaType)
	}
	if d.Size < 0 {
		return errorf(ManifestInvalid, "%s %s: size is negative", what, d.Digest)
	}
	return nil
}

// optional says that a layer need not be in the repository: clients pull it from
// another source.
func optional(layer *v1.Descriptor) bool {
	return layer.MediaType == foreignLayer || strings.Contains(layer.MediaType, notDistributable)
}

// References lists what a stored manifest needs: the blobs that must exist, and the
// manifests of a list.
func References(mediaType string, payload []byte) (blobs, manifests []digest.Digest, err error) {
	m, err := parseManifest(mediaType, payload)
	if err != nil {
		return nil, nil, err
	}
	for i := range m.layers {
		if !optional(&m.layers[i]) {
			blobs = append(blobs, m.layers[i].Digest)
		}
	}
	if m.config != nil && !optional(m.config) {
		blobs = append(blobs, m.config.Digest)
	}
	for _, child := range m.children {
		manifests = append(manifests, child.Digest)
	}
	return blobs, manifests, nil
}

// blobDigests lists the blobs of a manifest.
func (m *manifest) blobDigests() []string {
	var list []string
	if m.config != nil {
		list = append(list, m.config.Digest.String())
	}
	for _, layer := range m.layers {
		list = append(list, layer.Digest.String())
	}
	return list
}

// childDigests lists the manifests of a list.
func (m *manifest) childDigests() []string {
	var list []string
	for _, child := range m.children {
		list = append(list, child.Digest.String())
	}
	return list
}

const (
	// maxMediaType exceeds what RFC 6838 allows for type and subtype.
	maxMediaType = 255
	// maxCachedMediaTypes bounds the cache, because clients can invent types.
	maxCachedMediaTypes = 1000
	// maxMediaTypes is how many types one manifest may name: each is a row that
	// is never deleted. Real manifests name fewer than ten.
	maxMediaTypes = 500
)

// mediaTypes finds the ids of media types. Rows are never changed or deleted, so
// the cache stays valid.
type mediaTypes struct {
	db *sqldb.DB

	mu  sync.Mutex
	ids map[string]int64 // guarded by mu
}

// find returns the ids of media types, and creates the missing ones in their own
// transaction: an id may be cached only after its commit. names are sorted, so
// that two pushes cannot deadlock.
func (m *mediaTypes) find(ctx context.Context, w *writer, names []string) (map[string]int64, error) {
	ids, unknown := m.cached(names)
	if len(unknown) == 0 {
		return ids, nil
	}
	list := sqldb.JSON(unknown)
	found := map[string]int64{}
	take := func(row sqldb.Row) error {
		var name string
		var id int64
		err := row.Scan(&name, &id)
		found[name] = id
		return err
	}
	if err := sqldb.Each(ctx, m.db, take, findMediaTypes(m.db.Engine()), list); err != nil {
		return nil, fmt.Errorf("find media types: %w", err)
	}
	if len(found) < len(unknown) {
		err := w.do(ctx, func(tx *sqldb.Tx) error { return m.insert(ctx, tx, list, take) })
		if err != nil {
			return nil, fmt.Errorf("store media types: %w", err)
		}
	}
	if len(found) < len(unknown) {
		return nil, errors.New("find media types: some rows are missing after the insert")
	}
	maps.Copy(ids, found)
	m.cache(found)
	return ids, nil
}

// cached looks names up in the cache.
func (m *mediaTypes) cached(names []string) (ids map[string]int64, unknown []string) {
	ids = make(map[string]int64, len(names))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if id, ok := m.ids[name]; ok {
			ids[name] = id
		} else {
			unknown = append(unknown, name)
		}
	}
	return ids, unknown
}

func (m *mediaTypes) cache(ids map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil || len(m.ids)+len(ids) > maxCachedMediaTypes {
		m.ids = make(map[string]int64, len(ids))
	}
	maps.Copy(m.ids, ids)
}

// insert creates the missing ids, and reads all of them.
func (m *mediaTypes) insert(ctx context.Context, tx *sqldb.Tx, list string, take func(sqldb.Row) error) error {
	insert := insertMediaTypesSQLite
	if m.db.Engine() == sqldb.Postgres {
		insert = insertMediaTypesPostgres
	}
	var b sqldb.Batch
	b.Exec(insert, list)
	b.Query(take, findMediaTypes(m.db.Engine()), list)
	return tx.Send(ctx, &b)
}

func findMediaTypes(engine sqldb.Engine) string {
	if engine == sqldb.Postgres {
		return findMediaTypesPostgres
	}
	return findMediaTypesSQLite
}

// checkMediaType checks a name before it is stored forever.
func checkMediaType(name string) bool {
	if name == "" || len(name) > maxMediaType {
		return false
	}
	return visible(name)
}

// visible says that a text has only visible ASCII characters, as all names here
// do. PostgreSQL refuses a text with a zero byte or invalid UTF-8, even in a
// query.
func visible(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < '!' || c > '~' })
}

// baseMediaType is a Content-Type without its parameters.
func baseMediaType(contentType string) string {
	base, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		base, _, _ = strings.Cut(contentType, ";")
	}
	return strings.TrimSpace(base)
}

// checkContentType refuses the types that a web page can send to any server
// without a CORS preflight. Registry clients send bytes as
// application/octet-stream, or without a type. parseManifest checks the types of
// manifests.
func checkContentType(kind Kind, req *http.Request) error {
	if kind != UploadStart && kind != UploadPatch && kind != UploadPut {
		return nil
	}
	switch sent := strings.ToLower(baseMediaType(req.Header.Get("Content-Type"))); sent {
	case "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return errorf(Unsupported, "an upload cannot be %s: send it as application/octet-stream", sent).as(http.StatusUnsupportedMediaType)
	}
	return nil
}
