package blobstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Open opens the store at a location: a directory, or a bucket as
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&part-size=MIB]
//
// S3Config explains the parts.
func Open(ctx context.Context, location string) (Store, error) {
	if !strings.HasPrefix(location, "s3:") {
		if scheme, _, ok := strings.Cut(location, "://"); ok {
			return nil, fmt.Errorf("open blob store %q: %s:// is not supported: want a directory, or s3://BUCKET/PREFIX", location, scheme)
		}
		return OpenDir(location)
	}
	c, err := ParseS3(location)
	if err != nil {
		return nil, err
	}
	return OpenS3(ctx, c)
}

// ParseS3 reads an s3:// location.
func ParseS3(location string) (S3Config, error) {
	c, err := parseS3(location)
	if err != nil {
		return S3Config{}, fmt.Errorf("blob store %q: %w", location, err)
	}
	return c, nil
}

func parseS3(location string) (c S3Config, err error) {
	u, err := url.Parse(location)
	if err != nil {
		return c, errors.Unwrap(err) // the message already has the location
	}
	if u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return c, errors.New("want s3://BUCKET/PREFIX; credentials come from the environment, not from the location")
	}
	c.Bucket, c.Prefix = u.Host, strings.Trim(u.Path, "/")
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return c, err
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			c.Endpoint = value
		case "region":
			c.Region = value
		case "part-size":
			mib, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return c, fmt.Errorf("part-size %q: want a number of MiB", value)
			}
			c.PartSize = mib << 20
		default:
			return c, fmt.Errorf("%q is not a setting: want endpoint, region or part-size", name)
		}
	}
	return c.withDefaults()
}

// withDefaults sets the defaults and checks the values.
func (c S3Config) withDefaults() (S3Config, error) {
	c.Endpoint = cmp.Or(c.Endpoint, "https://s3.amazonaws.com")
	c.Region = cmp.Or(c.Region, os.Getenv("AWS_REGION"))
	c.PartSize = cmp.Or(c.PartSize, 16<<20)
	if c.PartSize < minPartSize || c.PartSize > maxPartSize {
		return c, fmt.Errorf("part-size is %d MiB: want %d to %d", c.PartSize>>20, minPartSize>>20, maxPartSize>>20)
	}
	if c.Bucket == "" {
		return c, errors.New("no bucket given")
	}
	for _, element := range strings.Split(c.Prefix, "/") {
		if element == "." || element == ".." || element == "" && c.Prefix != "" {
			return c, fmt.Errorf("prefix %q: want names with single slashes between them", c.Prefix)
		}
	}
	return c, nil
}
