package backup

import (
	"bytes"
	"context"
	"crypto/md5" // what servers have for an ETag
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

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

const (
	// openPatience bounds how long a server is asked whether the bucket is there, the look for credentials among that.
	openPatience = 30 * time.Second
	// callPatience bounds one call, over all its tries. It is shorter than what a copy of a group lives that nobody reads.
	callPatience = 4 * time.Minute
	// tries is how often minio-go sends a request that has failed for a reason which passes, a second apart at most.
	tries = 5
)

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
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
		}),
		Secure: u.Scheme == "https", Region: o.Region, Transport: o.HTTP, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTarget, err)
	}
	s := &S3{c: c, bucket: bucket}
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	return s, s.find(ctx, u.Host)
}

// find sees to it that there are credentials, and a bucket that they may use. ErrTarget, those of the server.
func (s *S3) find(ctx context.Context, host string) error {
	within, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	type found struct {
		is  credentials.Value
		err error
	}
	creds := make(chan found, 1) // minio-go looks for them without a context
	go func() {
		v, err := s.c.GetCreds()
		creds <- found{v, err}
	}()
	var f found
	select {
	case f = <-creds:
	case <-within.Done():
		f.err = context.Cause(within)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case f.err != nil || f.is.AccessKeyID == "":
		return fmt.Errorf("%w: there are no credentials for %s: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials", ErrTarget, s)
	}
	there, err := s.c.BucketExists(within, s.bucket)
	switch code := minio.ToErrorResponse(err).Code; {
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%w: %s has not said within %v whether there is a bucket %q", ErrTarget, host, openPatience, s.bucket)
	case code == minio.AccessDenied || code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch":
		return fmt.Errorf("%w: %s does not take these credentials for bucket %q: %w", ErrTarget, host, s.bucket, err)
	case err != nil:
		return fmt.Errorf("%s at %s: %w", s, host, err)
	case !there:
		return fmt.Errorf("%w: there is no bucket %q at %s: make it first", ErrTarget, s.bucket, host)
	}
	return nil
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
	info, err := s.stat(ctx, name)
	return info.Size, err
}

func (s *S3) stat(ctx context.Context, name string) (minio.ObjectInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	info, err := s.c.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{Checksum: true})
	return info, s.fault(name, err)
}

// Same implements Target. The server's checksum is of the bytes that it was given: what its disks have made of them since is its own to find, and verify's.
func (s *S3) Same(ctx context.Context, name string, data []byte) (there, same bool, err error) {
	info, err := s.stat(ctx, name)
	switch {
	case errors.Is(err, ErrNoObject):
		return false, false, nil
	case err != nil || info.Size != int64(len(data)):
		return err == nil, false, err
	case info.ChecksumSHA256 != "":
		return true, info.ChecksumSHA256 == checksumOf(data), nil
	}
	if sum := md5.Sum(data); strings.Trim(info.ETag, `"`) == hex.EncodeToString(sum[:]) {
		return true, true, nil
	}
	// An ETag need not be the MD5 of the bytes: that of an object which the server has encrypted with a key of its own is not.
	b, err := s.Get(ctx, name, info.Size)
	if errors.Is(err, ErrNoObject) || errors.Is(err, ErrTooLarge) {
		return true, false, nil
	}
	return true, err == nil && bytes.Equal(b, data), err
}

// checksumHeader has the SHA-256 of what is put, which the server compares, and says again when it is asked; a server that does not know it leaves it
// out. minio-go takes it in capitals alone where nothing trails the bytes, which older servers do not know.
const checksumHeader = "X-Amz-Checksum-Sha256"

func checksumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Put implements Target. An object is put in one request, whatever its size: it is never above 5 GiB, which is the most, and appears whole. In several, which minio-go
// makes of objects above 16 MiB, a server that does not know signed chunks in parts has stored the signatures among the bytes.
func (s *S3) Put(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	_, err := s.c.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, UserMetadata: map[string]string{checksumHeader: checksumOf(data)},
	})
	return s.fault(name, err)
}

// Get implements Target.
func (s *S3) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	o, err := s.c.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s.fault(name, err)
	}
	defer o.Close()
	info, err := o.Stat()
	switch {
	case err != nil:
		return nil, s.fault(name, err)
	case info.Size < 0:
		return nil, s.fault(name, errors.New("the server does not say how long it is"))
	case info.Size > most:
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrTooLarge, name, info.Size, most)
	}
	b := make([]byte, info.Size)
	if _, err := io.ReadFull(o, b); err != nil {
		return nil, s.fault(name, err)
	}
	return b, nil
}

// List implements Target.
func (s *S3) List(ctx context.Context, prefix string, most int) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
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
