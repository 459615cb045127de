package blob

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scheme is the kind of store that a Location names.
type Scheme string

// The schemes that a Location may have.
const (
	SchemeFile Scheme = "file" // file:///DIR; with ?keys=FILE, like s3, its objects are encrypted: see blob/sealed.
	SchemeS3   Scheme = "s3"   // s3://BUCKET/PREFIX?endpoint=URL&region=R&path-style=true
	SchemeMem  Scheme = "mem"  // mem://NAME, for tests and runs within one process
)

// DefaultRegion is used where an s3 URL names no region: AWS signs for it, and other servers take any.
const DefaultRegion = "us-east-1"

// Location is a checked URL of a store, or of a place within one. The zero value is not a location; the way in is
// ParseLocation.
type Location struct {
	Scheme Scheme
	// Bucket of s3, name of mem.
	Bucket string
	// Path of file: absolute directory. Of s3 and mem: prefix of all keys, segments as in CheckKey, or empty.
	Path string
	// Endpoint of s3, for example http://127.0.0.1:9000; empty is AWS in the Region.
	Endpoint string
	// Region of s3; empty is DefaultRegion.
	Region string
	// PathStyle of s3: the bucket goes into the path of requests, not into the host name.
	PathStyle bool
	// Keys of file and s3 is the absolute path of a file with keys, when the objects are encrypted. Every process that opens the
	// store reads it.
	Keys string
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// ParseLocation reads the URL of a store. Its error lists everything that is wrong with it; credentials in a URL
// are refused and not repeated in the error.
func ParseLocation(raw string) (Location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return Location{}, fmt.Errorf("blob URL cannot be read: %w", err)
	}
	var loc Location
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if u.User != nil {
		problem("it holds credentials: give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the shared credentials file or an IAM role")
	}
	if u.Fragment != "" {
		problem("it has a fragment (#)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		problem("its query cannot be read: %v", err)
	}
	switch loc.Scheme = Scheme(u.Scheme); loc.Scheme {
	case SchemeFile:
		loc.parseFile(u, problem)
		checkQuery(query, []string{"keys"}, problem)
		loc.parseKeys(query, problem)
	case SchemeMem:
		loc.Bucket = u.Host
		if u.Host == "" {
			problem("it names no store: want mem://NAME")
		}
		loc.parsePrefix(u, problem)
		checkQuery(query, nil, problem)
	case SchemeS3:
		loc.Bucket = u.Host
		if !bucketName.MatchString(u.Host) {
			problem("bucket %q is not 3 to 63 lower-case letters, digits, dots and hyphens", u.Host)
		}
		loc.parsePrefix(u, problem)
		checkQuery(query, []string{"endpoint", "keys", "path-style", "region"}, problem)
		loc.parseS3Query(query, problem)
		loc.parseKeys(query, problem)
	case "":
		problem("it has no scheme: want file:///DIR or s3://BUCKET/PREFIX")
	default:
		problem("scheme %q is unknown: want file or s3", u.Scheme)
	}
	if len(problems) > 0 {
		u.User = nil
		u.RawQuery = redactQuery(query)
		return Location{}, fmt.Errorf("blob URL %s: %s", u, strings.Join(problems, "; "))
	}
	return loc, nil
}

func (l *Location) parseFile(u *url.URL, problem func(string, ...any)) {
	switch {
	case u.Opaque != "" || u.Host != "":
		problem("the directory must be absolute: want file:///DIR")
	case u.Path == "":
		problem("it names no directory: want file:///DIR")
	case slices.Contains(strings.Split(u.Path, "/"), ".."):
		problem("the directory contains ..")
	}
	l.Path = path.Clean("/" + u.Path)
}

func (l *Location) parsePrefix(u *url.URL, problem func(string, ...any)) {
	l.Path = strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	if l.Path == "" {
		return
	}
	if err := CheckKey(l.Path); err != nil {
		problem("prefix: %v", err)
	}
}

func (l *Location) parseKeys(query url.Values, problem func(string, ...any)) {
	l.Keys = query.Get("keys")
	if l.Keys != "" && !path.IsAbs(l.Keys) {
		problem("keys is not the absolute path of a file")
	}
}

func (l *Location) parseS3Query(query url.Values, problem func(string, ...any)) {
	l.Region = query.Get("region")
	if v := query.Get("path-style"); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			problem("path-style %q is neither true nor false", v)
		}
		l.PathStyle = on
	}
	v := query.Get("endpoint")
	if v == "" {
		return
	}
	e, err := url.Parse(v)
	switch {
	case err != nil:
		problem("endpoint cannot be read as a URL")
	case e.User != nil:
		problem("endpoint holds credentials")
	case e.Scheme != "http" && e.Scheme != "https", e.Host == "":
		problem("endpoint %q is not http://HOST[:PORT] or https://HOST[:PORT]", v)
	case strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.Fragment != "":
		problem("endpoint %q has more than a host and a port", v)
	default:
		l.Endpoint = e.Scheme + "://" + e.Host
	}
}

func checkQuery(query url.Values, known []string, problem func(string, ...any)) {
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		switch {
		case !slices.Contains(known, key) && len(known) == 0:
			problem("parameter %q is unknown: there are none for this scheme", key)
		case !slices.Contains(known, key):
			problem("parameter %q is unknown: want one of %s", key, strings.Join(known, ", "))
		case len(query[key]) > 1:
			problem("parameter %q is given %d times", key, len(query[key]))
		}
	}
}

// redactQuery keeps the names of a query and drops its values, which may be secrets under an unknown name.
func redactQuery(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, url.QueryEscape(key)+"=...")
	}
	slices.Sort(keys)
	return strings.Join(keys, "&")
}

// String is the URL; ParseLocation reads it back to an equal Location.
func (l Location) String() string {
	if l.Scheme == "" {
		return "(no location)"
	}
	return (&url.URL{Scheme: string(l.Scheme), Host: l.host(), Path: l.urlPath(""), RawQuery: l.query()}).String()
}

// Object is the URL of the object with that key at this location, without parameters: what errors and logs say.
func (l Location) Object(key string) string {
	return (&url.URL{Scheme: string(l.Scheme), Host: l.host(), Path: l.urlPath(key)}).String()
}

// Join is the location of a place within this one; dir follows the rules of keys.
func (l Location) Join(dir string) (Location, error) {
	if err := CheckKey(dir); err != nil {
		return Location{}, fmt.Errorf("place within %s: %w", l, err)
	}
	l.Path = path.Join(l.Path, dir)
	return l, nil
}

// Key is the full key of an object within the bucket.
func (l Location) Key(key string) string {
	if l.Path == "" {
		return key
	}
	return l.Path + "/" + key
}

// Relative is the opposite of Key; it leaves a key alone that is not at this location.
func (l Location) Relative(full string) string {
	if l.Path == "" {
		return full
	}
	return strings.TrimPrefix(full, l.Path+"/")
}

func (l Location) host() string {
	if l.Scheme == SchemeFile {
		return ""
	}
	return l.Bucket
}

func (l Location) urlPath(key string) string {
	p := strings.Trim(l.Path, "/")
	if p != "" && key != "" {
		p += "/"
	}
	p += key
	if p == "" && l.Scheme != SchemeFile {
		return ""
	}
	return "/" + p
}

func (l Location) query() string {
	q := url.Values{}
	if l.Endpoint != "" {
		q.Set("endpoint", l.Endpoint)
	}
	if l.Region != "" {
		q.Set("region", l.Region)
	}
	if l.PathStyle {
		q.Set("path-style", "true")
	}
	if l.Keys != "" {
		q.Set("keys", l.Keys)
	}
	return q.Encode()
}
