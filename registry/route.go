package registry

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

// Kind is what a request asks for.
type Kind int

// The kinds of requests, with the endpoints of distribution-spec.
const (
	Ping           Kind = iota // end-1   GET /v2/
	Catalog                    //         GET /v2/_catalog
	TagList                    // end-8   GET /v2/<name>/tags/list
	Referrers                  // end-12  GET /v2/<name>/referrers/<digest>
	BlobGet                    // end-2   GET /v2/<name>/blobs/<digest>
	BlobHead                   // end-2   HEAD
	BlobDelete                 // end-10  DELETE
	UploadStart                // end-4, end-11  POST /v2/<name>/blobs/uploads/
	UploadStatus               // end-13  GET /v2/<name>/blobs/uploads/<id>
	UploadPatch                // end-5   PATCH
	UploadPut                  // end-6   PUT
	UploadCancel               // end-14  DELETE
	ManifestGet                // end-3   GET /v2/<name>/manifests/<tag or digest>
	ManifestHead               // end-3   HEAD
	ManifestPut                // end-7   PUT
	ManifestDelete             // end-9   DELETE
	kinds
)

// Request is the meaning of a method and a URL. Names, tags, digests and ids are
// well formed; they may not exist.
type Request struct {
	Kind       Kind
	Repository string
	Tag        string        // of a manifest; empty means by Digest
	Digest     digest.Digest // of a blob, manifest or subject
	Upload     string        // id of an upload

	// Abandoned is closed when no client waits for what is asked of an upstream. Nil: never.
	Abandoned <-chan struct{}

	client  Client // who asks; set by serve
	fetched bool   // the server asks, to fill a cached repository
}

// endpoint is a path without a method: the kind of request for each method, and
// the values in the path.
type endpoint struct {
	methods map[string]Kind
	named   bool // the path has a repository
	request Request
}

var (
	pingMethods      = map[string]Kind{http.MethodGet: Ping, http.MethodHead: Ping}
	catalogMethods   = map[string]Kind{http.MethodGet: Catalog}
	tagMethods       = map[string]Kind{http.MethodGet: TagList}
	referrersMethods = map[string]Kind{http.MethodGet: Referrers}
	startMethods     = map[string]Kind{http.MethodPost: UploadStart}
	blobMethods      = map[string]Kind{http.MethodGet: BlobGet, http.MethodHead: BlobHead, http.MethodDelete: BlobDelete}
	uploadMethods    = map[string]Kind{http.MethodGet: UploadStatus, http.MethodPatch: UploadPatch, http.MethodPut: UploadPut, http.MethodDelete: UploadCancel}
	manifestMethods  = map[string]Kind{http.MethodGet: ManifestGet, http.MethodHead: ManifestHead, http.MethodPut: ManifestPut, http.MethodDelete: ManifestDelete}
)

// Parse returns what a request means. It is pure. Its errors are for the client.
//
// It parses a path from its end: a repository may be called a/blobs/b, but no
// tag, digest or id contains a slash. The path is already unescaped, so an
// escaped slash is a slash; names are then checked against the grammar, which
// does not allow "..".
func Parse(method string, u *url.URL) (Request, error) {
	rest, ok := strings.CutPrefix(u.Path, "/v2")
	if !ok || rest != "" && rest[0] != '/' {
		return Request{}, errorf(Unsupported, "nothing is served at this path").as(http.StatusNotFound)
	}
	found, err := match(method, strings.Split(strings.TrimPrefix(rest, "/"), "/"))
	if err != nil {
		return Request{}, err
	}
	if found.named {
		if err := checkName(found.request.Repository); err != nil {
			return Request{}, err
		}
	}
	kind, ok := found.methods[method]
	if !ok {
		e := errorf(Unsupported, "method %s is not for this path", method).as(http.StatusMethodNotAllowed)
		e.allow = allowed(found.methods)
		return Request{}, e
	}
	found.request.Kind = kind
	return found.request, nil
}

// match finds the endpoint of a path.
func match(method string, path []string) (endpoint, error) {
	n := len(path)
	switch {
	case n == 1 && path[0] == "":
		return endpoint{methods: pingMethods}, nil
	case n == 1 && path[0] == "_catalog":
		return endpoint{methods: catalogMethods}, nil
	case n >= 3 && path[n-2] == "tags" && path[n-1] == "list":
		return endpoint{tagMethods, true, Request{Repository: join(path[:n-2])}}, nil
	case n >= 3 && path[n-2] == "blobs" && path[n-1] == "uploads":
		return endpoint{startMethods, true, Request{Repository: join(path[:n-2])}}, nil
	case n >= 4 && path[n-3] == "blobs" && path[n-2] == "uploads":
		return matchUpload(join(path[:n-3]), path[n-1])
	case n >= 3 && path[n-2] == "blobs":
		d, err := parseDigest(path[n-1])
		return endpoint{blobMethods, true, Request{Repository: join(path[:n-2]), Digest: d}}, err
	case n >= 3 && path[n-2] == "referrers":
		d, err := parseDigest(path[n-1])
		return endpoint{referrersMethods, true, Request{Repository: join(path[:n-2]), Digest: d}}, err
	case n >= 3 && path[n-2] == "manifests":
		return matchManifest(method, join(path[:n-2]), path[n-1])
	}
	return endpoint{}, errorf(Unsupported, "nothing is served at this path").as(http.StatusNotFound)
}

// isUploadID reports whether an id has the form of upload ids.
func isUploadID(id string) bool {
	parsed, err := uuid.Parse(id)
	return err == nil && parsed.String() == id
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

func matchUpload(name, id string) (endpoint, error) {
	if id == "" {
		return endpoint{startMethods, true, Request{Repository: name}}, nil
	}
	if !isUploadID(id) {
		return endpoint{}, errorf(BlobUploadUnknown, "no upload has this id")
	}
	return endpoint{uploadMethods, true, Request{Repository: name, Upload: id}}, nil
}

func matchManifest(method, name, ref string) (endpoint, error) {
	to := Request{Repository: name, Tag: ref}
	if strings.Contains(ref, ":") {
		d, err := parseDigest(ref)
		if err != nil {
			return endpoint{}, err
		}
		to.Tag, to.Digest = "", d
	} else if err := checkTag(ref); err != nil {
		if method != http.MethodPut {
			// A tag with an invalid name does not exist.
			err = errorf(ManifestUnknown, "no tag can be called %q", ref)
		}
		return endpoint{}, err
	}
	return endpoint{manifestMethods, true, to}, nil
}

func join(path []string) string { return strings.Join(path, "/") }

func allowed(methods map[string]Kind) string {
	var list []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
		if _, ok := methods[method]; ok {
			list = append(list, method)
		}
	}
	return strings.Join(list, ", ")
}

// Path is the inverse of Parse: the URL path of a request.
func (to Request) Path() string {
	name := "/v2/" + to.Repository
	switch to.Kind {
	case Ping:
		return "/v2/"
	case Catalog:
		return "/v2/_catalog"
	case TagList:
		return name + "/tags/list"
	case Referrers:
		return name + "/referrers/" + to.Digest.String()
	case BlobGet, BlobHead, BlobDelete:
		return name + "/blobs/" + to.Digest.String()
	case UploadStart, UploadStatus, UploadPatch, UploadPut, UploadCancel:
		return name + "/blobs/uploads/" + to.Upload
	}
	if to.Tag != "" {
		return name + "/manifests/" + to.Tag
	}
	return name + "/manifests/" + to.Digest.String()
}

// maxName bounds names, because clients bound them together with the host.
const maxName = reference.RepositoryNameTotalLengthMax

// checkName checks a repository's name against the reference grammar. The
// library's pattern does not help: it accepts a host as part of the name.
func checkName(name string) error {
	if len(name) > maxName {
		return errorf(NameInvalid, "the repository name has %d characters, more than %d", len(name), maxName)
	}
	if !v1.ValidPath(name) {
		return errorf(NameInvalid, "%q is not a repository name: want lower-case letters and digits, separated by one . or _, two _ or any number of -, in components separated by /", name)
	}
	return nil
}

func checkTag(tag string) error {
	if !isTag(tag) {
		return errorf(ManifestInvalid, "%q is not a tag: want at most 128 letters, digits, _, . and -, not beginning with . or -", tag)
	}
	return nil
}

// isTag agrees with reference.TagRegexp, without a regular expression: every read of a
// manifest by its tag asks.
func isTag(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// parseDigest accepts the digests that the registry can verify.
func parseDigest(s string) (digest.Digest, error) {
	if isDigest(s) {
		return digest.Digest(s), nil
	}
	d, err := digest.Parse(s)
	if err != nil {
		return "", errorf(DigestInvalid, "%q is not a digest: want sha256: or sha512: and its lower-case hexadecimal digits", s)
	}
	return "", errorf(DigestInvalid, "digest algorithm %s is not supported: want sha256 or sha512", d.Algorithm())
}

// isDigest agrees with digest.Parse for supported algorithms, without a regular
// expression.
func isDigest(s string) bool {
	algorithm, digits, _ := strings.Cut(s, ":")
	if a := digest.Algorithm(algorithm); !Supported(a) || len(digits) != 2*a.Size() {
		return false
	}
	for i := range len(digits) {
		if !isHex(digits[i]) {
			return false
		}
	}
	return true
}

// Supported reports whether the registry computes digests of an algorithm.
func Supported(a digest.Algorithm) bool { return a == digest.SHA256 || a == digest.SHA512 }
