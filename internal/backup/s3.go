package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// DefaultEndpoint is the S3 server where none is named.
const DefaultEndpoint = "https://s3.amazonaws.com"

// S3Options say how a bucket is reached. Credentials are never among them: they come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
// or MINIO_ROOT_USER, MINIO_ROOT_PASSWORD), from ~/.aws/credentials (AWS_PROFILE), or from the machine's role, in this order.
type S3Options struct {
	// Endpoint is a URL, https://HOST[:PORT], or HOST[:PORT], which is by TLS too; http:// has to be said. "": DefaultEndpoint.
	Endpoint string
	Region   string            // "": asked for
	HTTP     http.RoundTripper // nil: that of minio-go
}

// An S3 is a target in a bucket.
type S3 struct {
	c              *minio.Client
	bucket, prefix string // prefix: "" or with a slash behind it
}

// IsS3 says whether a target is named as one in a bucket.
func IsS3(target string) bool { return strings.HasPrefix(target, "s3://") }

// OpenS3 opens s3://BUCKET[/PREFIX]. The bucket must be there: it is never made.
//
// Errors: ErrTarget for what is no such name, and for a bucket that is not there; those of the server.
func OpenS3(ctx context.Context, target string, o S3Options) (*S3, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(target, "s3://"), "/")
	prefix = strings.Trim(prefix, "/")
	if !IsS3(target) || bucket == "" || strings.ContainsAny(target, "?#@ ") {
		// What was typed is not told: it may have a secret in it.
		return nil, fmt.Errorf("%w: a bucket is named s3://BUCKET/PREFIX, and nothing else: credentials come from the environment", ErrTarget)
	}
	end := o.Endpoint
	if end == "" {
		end = DefaultEndpoint
	}
	if !strings.Contains(end, "://") {
		end = "https://" + end
	}
	u, err := url.Parse(end)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("%w: an S3 endpoint is https://HOST[:PORT], or http:// if it has no TLS, and nothing else: credentials come from the environment", ErrTarget)
	}
	c, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: u.Scheme == "https", Region: o.Region, Transport: o.HTTP,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTarget, err)
	}
	s := &S3{c: c, bucket: bucket}
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	if there, err := c.BucketExists(ctx, bucket); err != nil {
		return nil, fmt.Errorf("%s at %s: %w", s, u.Host, err)
	} else if !there {
		return nil, fmt.Errorf("%w: there is no bucket %q at %s", ErrTarget, bucket, u.Host)
	}
	return s, nil
}

// String implements Target.
func (s *S3) String() string { return "s3://" + s.bucket + "/" + strings.TrimSuffix(s.prefix, "/") }

// fault makes an ErrNoObject of an object that is not there, and says which object an error is about.
func (s *S3) fault(name string, err error) error {
	if err == nil {
		return nil
	}
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey {
		return ErrNoObject
	}
	return fmt.Errorf("%s/%s: %w", strings.TrimSuffix(s.String(), "/"), name, err)
}

// Size implements Target.
func (s *S3) Size(ctx context.Context, name string) (int64, error) {
	info, err := s.c.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	return info.Size, s.fault(name, err)
}

// Put implements Target. An object is put in one request, whatever its size: it is never above 5 GiB, which is the most, and appears whole. In several, which minio-go
// makes of objects above 16 MiB, a server that does not know signed chunks in parts has stored the signatures among the bytes.
func (s *S3) Put(ctx context.Context, name string, data []byte) error {
	_, err := s.c.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true})
	return s.fault(name, err)
}

// Get implements Target.
func (s *S3) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	o, err := s.c.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s.fault(name, err)
	}
	defer o.Close()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(o, most+1))
	switch {
	case err != nil:
		return nil, s.fault(name, err)
	case n > most:
		return nil, fmt.Errorf("%w: %s, at most %d bytes", ErrTooLarge, name, most)
	}
	return b.Bytes(), nil
}

// errEnough ends a list.
var errEnough = errors.New("enough")

// List implements Target.
func (s *S3) List(ctx context.Context, prefix string, most int) (names []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errEnough)
	for o := range s.c.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, s.fault(prefix, o.Err)
		}
		if names = append(names, strings.TrimPrefix(o.Key, s.prefix)); len(names) == most {
			break
		}
	}
	return names, ctx.Err()
}
