# make dist            build/dist/llm-capture-VERSION.tar.gz
# make deb             build/deb/libnginx-mod-http-llm-capture_*.deb, and
#                      build/deb/llm-capture_*.deb of the command
# make ship-deps       what t/ship/{deb,image,kubernetes}.t need
# make picture         docs/capture.svg, by the demo

.PHONY: dist deb deb-deps ship-deps check-ship check-ship-short picture

VERSION := $(shell sed -n '1s/.* //p' CHANGES)
DIST    := build/dist/llm-capture-$(VERSION).tar.gz
DEB     := libnginx-mod-http-llm-capture

DEB_PACKAGES  := build-essential debhelper libjansson-dev libmd-dev \
                 libpcre2-dev libssl-dev libzstd-dev nginx-dev zlib1g-dev

IMAGE_PACKAGES := lintian debootstrap podman buildah runc

SHIP_PACKAGES := $(IMAGE_PACKAGES) chromium prometheus rclone

# what is committed; out of a tarball, what was in it
dist:
	@packaging/dist.sh '$(VERSION)' '$(DIST)'

deb-deps:
	$(DEPS) $(DEB_PACKAGES)

ship-deps: deb-deps
	$(DEPS) $(SHIP_PACKAGES)

# the package, the images and the examples, as they are shipped: 20 minutes
check-ship: check-deps ship-deps
	@$(MAKE) --no-print-directory all
	$(PROVE) t/ship

# what CI runs of it: 3 minutes
check-ship-short: check-deps deb-deps
	$(DEPS) $(IMAGE_PACKAGES)
	@$(MAKE) --no-print-directory all
	LLM_CAPTURE_SHORT=1 $(PROVE) -j2 t/ship/image.t t/ship/deb.t \
	    t/ship/kubernetes.t

# a source package and two binary ones, out of the tarball
deb: deb-deps dist
	@rm -rf build/deb
	@mkdir -p build/deb
	@tar -C build/deb -xf $(DIST)
	@cd build/deb/llm-capture-$(VERSION) && env -u MAKEFLAGS -u MAKELEVEL \
	    -u MFLAGS -u CC_OPT -u LD_OPT -u CC \
	    dpkg-buildpackage -us -uc > ../build.log 2>&1 \
	|| { tail -n 30 ../build.log >&2; exit 1; }
	@ls build/deb/$(DEB)_*.deb build/deb/llm-capture_*.deb

picture: demo-deps
	@$(MAKE) --no-print-directory all build/demo/check
	@LLM_CAPTURE_NGINX='$(NGINX)' $(PYTHON) t/demo/demo.py 400
	@cp build/demo/capture.svg docs/capture.svg
