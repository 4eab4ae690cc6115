package blobstore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry/blobstore"
)

func TestParseS3(t *testing.T) {
	t.Setenv("AWS_REGION", "from-environment")
	const amazon = "https://s3.amazonaws.com"
	for location, want := range map[string]blobstore.S3Config{
		"s3://b":                     {Bucket: "b", Endpoint: amazon, Region: "from-environment", PartSize: 16 << 20},
		"s3://b/":                    {Bucket: "b", Endpoint: amazon, Region: "from-environment", PartSize: 16 << 20},
		"s3://b/p/q/?region=r":       {Bucket: "b", Prefix: "p/q", Endpoint: amazon, Region: "r", PartSize: 16 << 20},
		"s3://b?part-size=5&region=": {Bucket: "b", Endpoint: amazon, Region: "from-environment", PartSize: 5 << 20},
		"s3://b/p?endpoint=http%3A%2F%2Fhost:9000": {
			Bucket: "b", Prefix: "p", Endpoint: "http://host:9000", Region: "from-environment", PartSize: 16 << 20,
		},
	} {
		got, err := blobstore.ParseS3(location)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", location, err, diff)
		}
	}
}

// TestOpenRefuses: the error names each mistake, and no request is sent.
func TestOpenRefuses(t *testing.T) {
	for location, want := range map[string]string{
		"":                              "no directory given",
		"gs://bucket":                   "gs:// is not supported",
		"s3://":                         "want s3://BUCKET/PREFIX",
		"s3:bucket":                     "want s3://BUCKET/PREFIX",
		"s3://key:secret@bucket":        "credentials come from the environment",
		"s3://b?secret=x":               `"secret" is not a setting`,
		"s3://b?part-size=16MiB":        `part-size "16MiB": want a number of MiB`,
		"s3://b?part-size=4":            "part-size is 4 MiB: want 5 to 1024",
		"s3://b?part-size=1025":         "part-size is 1025 MiB: want 5 to 1024",
		"s3://b/p//q":                   `prefix "p//q"`,
		"s3://b/../q":                   `prefix "../q"`,
		"s3://b?endpoint=host":          "the endpoint is not http://HOST or https://HOST",
		"s3://b?endpoint=ftp://h":       "the endpoint is not http://HOST or https://HOST",
		"s3://b?endpoint=http://h/path": "the endpoint is not http://HOST or https://HOST",
		"s3://b?%zz":                    "invalid URL escape",
	} {
		s, err := blobstore.Open(t.Context(), location)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", location, s, err, want)
		}
	}
}
