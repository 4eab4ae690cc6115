package server

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Config is what a server needs to know. The zero value of a field is its
// default.
type Config struct {
	// Data is the directory that holds certificates, the kubeconfig and, by
	// default, the database. Default ./data.
	Data string
	// Listen is the API's address, HOST:PORT; port 0 picks one. Default
	// 127.0.0.1:6443.
	Listen string
	// TLSNames are further host names and addresses for the serving certificate.
	// Localhost and the machine's own are in it.
	TLSNames []string
	// RegistryListen is the OCI registry's address, HOST:PORT; port 0 picks one.
	// Empty: no registry. On loopback it is plain HTTP for everybody, elsewhere
	// TLS for callers with a client certificate.
	RegistryListen string
	// RegistryPlainHTTP makes it plain HTTP for everybody on any address.
	RegistryPlainHTTP bool
	// RegistryHosts are further names that a registry on loopback answers to. It
	// refuses requests for others: they come from web pages.
	RegistryHosts []string
	// RegistryAcceptStorage takes a blob store that has no id, or another's, for
	// the one of this database, and gives it this database's id.
	RegistryAcceptStorage bool
	// RegistryReviewAfter sets how long after an event of the registry its
	// subject is reviewed. Events that are not named keep what the database says.
	RegistryReviewAfter map[string]time.Duration
	// RegistryKeepManifests and RegistryKeepBlobs stop the collection of the
	// registry's manifests and blobs. What could go waits in the queues.
	RegistryKeepManifests, RegistryKeepBlobs bool
	// RegistryKeepSignatures leaves alone the tags that cosign made for an image
	// when the image is collected.
	RegistryKeepSignatures bool
	// RegistryDeclared refuses pushes to repositories that no Repository
	// declares; otherwise the first push makes it.
	RegistryDeclared bool
	// RegistryNoNamespaces refuses pushes into namespaces that do not exist;
	// otherwise the first push makes them.
	RegistryNoNamespaces bool
	// RegistryStorage is where the registry keeps bytes: a directory, or
	// s3://BUCKET/PREFIX as blobstore.Open takes it. Default blobs in Data.
	RegistryStorage string
	// RegistryRedirect sends clients to S3 for the bytes of blobs.
	RegistryRedirect bool
	// Database is a postgres:// URL or the path of a SQLite file. Default
	// exeunt.db in Data.
	Database string
	// NoCollector leaves the garbage collector off: nothing is collected here,
	// and what waits for it waits until a server runs with it.
	NoCollector bool
	// OrphanWait bounds how long orphaning waits for the controller of the owner
	// to report that it has seen the deletion. Default 10 seconds; negative: it
	// does not wait.
	OrphanWait time.Duration
	// MaxCascade is how many objects a delete may take with it without being
	// confirmed, the object itself included; a Namespace's annotation overrides
	// it. 0: any number.
	MaxCascade int64
	// ArchiveFor is how long removed objects can be restored; a Namespace's
	// annotation overrides it. 0: nothing is archived.
	ArchiveFor time.Duration
	// ArchiveMaxBytes bounds the archive; the oldest leave first. Default 1 GiB.
	ArchiveMaxBytes int64
	// ArchiveNoSecrets: the archive knows that Secrets went, and keeps nothing of
	// their content.
	ArchiveNoSecrets bool
	// EventTTL is how long Events stay after they were last written. 0: until they
	// are deleted.
	EventTTL time.Duration
	// EncryptionConfig is the file with the keys that seal Secrets in the database,
	// an EncryptionConfiguration as kube-apiserver takes it. Default
	// encryption.yaml in Data, made at the first start.
	EncryptionConfig string
	// MeshHeartbeat is how often nodes of the mesh are asked to be heard of; one
	// that is not heard of four times in a row is unreachable. Default 10 seconds.
	MeshHeartbeat time.Duration
	// ManagementKubeconfig is the cluster that the broker builds on. Default: this
	// server.
	ManagementKubeconfig string
	// EventsWebhook is a URL that is told the broker's events. Empty: none.
	EventsWebhook string
	// EnrolURL is where machines that the broker builds reach this server. Default
	// the address in the kubeconfig.
	EnrolURL string
	// StallTimeout is how long a client may take nothing of its answer before
	// the server cuts it off. Default 30 seconds.
	StallTimeout time.Duration
	// Version is this program's version.
	Version string
	// Out is where a person reads the addresses. Default os.Stdout.
	Out io.Writer
	// Logger receives what operators read. Default slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Data == "" {
		c.Data = "data"
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:6443"
	}
	if c.Database == "" {
		c.Database = filepath.Join(c.Data, "exeunt.db")
	}
	if c.RegistryStorage == "" {
		c.RegistryStorage = filepath.Join(c.Data, "blobs")
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 30 * time.Second
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
